"""Is it the same, and how much memory does it take: gradients in float64 against each sample alone, and peak bytes."""

# torch's modules are partly untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from loadtests.tree.steps import forest_step, library_step, random_weights
from loadtests.tree.workloads import Sample

CHECKED_TOKENS = 10_000
"""Samples are drawn for the float64 check up to this many tokens: float64 is slow, the number is nobody's."""


def largest_error(model: Any, samples: Sequence[Sample], seed: int, budget_tokens: int) -> float:
    """Largest relative error, by norm, of loss and parameters' gradients in a float64 model, on samples drawn."""
    chosen = _drawn(samples, seed)
    weights = random_weights(chosen, seed, torch.float64)
    model.zero_grad(set_to_none=True)
    wanted_loss = library_step(model, chosen, weights, 1)
    wanted = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad(set_to_none=True)
    loss = forest_step(model, chosen, weights, budget_tokens)
    errors = [abs(loss - wanted_loss) / abs(wanted_loss)]
    for parameter, right in zip(model.parameters(), wanted, strict=True):
        errors.append(float((parameter.grad - right).norm() / right.norm()))
    return max(errors)


def _drawn(samples: Sequence[Sample], seed: int) -> list[Sample]:
    order = np.random.default_rng(seed).permutation(len(samples))
    chosen, tokens = list[Sample](), 0
    for index in order:
        if chosen and tokens + len(samples[index].ids_T) > CHECKED_TOKENS:
            break
        chosen.append(samples[index])
        tokens += len(samples[index].ids_T)
    return chosen


def peak_bytes(model: Any, run: Callable[[], object]) -> int:
    """Bytes that tensors take at most during a run, gradients among them and the model's weights added."""
    model.zero_grad(set_to_none=True)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    model.zero_grad(set_to_none=True)
    events: list[Any] = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]  # pyright: ignore
    live = peak = sum(parameter.nbytes for parameter in model.parameters())
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak
