"""The norm of each parameter's gradient, as a histogram over all parameters and ranks. It refuses to clip."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from services.trainer.domain.histograms import NORM_EDGES, Histogram
from services.trainer.ranks.sharding import local


def parameter_squares(model: Any) -> list[float]:
    """Squared norm of this rank's part of each trained parameter's gradient."""
    return [
        float(local(parameter.grad).double().pow(2).sum())
        for parameter in model.parameters()
        if parameter.requires_grad and parameter.grad is not None
    ]


def norm_histogram(squares_R: Sequence[Sequence[float]]) -> Histogram:
    """Of the norms, from every rank's squares; a parameter that lies in parts counts once."""
    return Histogram.of(NORM_EDGES, np.sqrt(np.sum(np.asarray(squares_R, np.float64), axis=0)))
