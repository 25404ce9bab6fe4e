"""The optimiser's state and the ranks' random state as a distributed checkpoint, each rank writing its parts.

It can be loaded by another number of ranks (torch.distributed.checkpoint). Entries are `<parameter>.<moment>` and
`random.<rank>`; a parameter that never had a gradient has none. It refuses to hold weights.
"""

# torch's distributed modules are partly untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from services.trainer.ports import Ranks

STEP = "step"
MOMENTS = ("exp_avg", "exp_avg_sq")
SEED_STRIDE = 1_000_003
"""Ranks that the checkpoint knows nothing of draw from streams of their own: seed + rank * this."""


def save_optimiser(folder: Path, model: Any, optimiser: torch.optim.AdamW, ranks: Ranks) -> None:
    """Write the state; every rank calls it with the same folder, which all of them can see."""
    state: dict[str, Any] = {f"random.{ranks.rank}": torch.get_rng_state()}
    for name, parameter in model.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            state[f"{name}.{key}"] = value
    with _quietly():
        save(state, checkpoint_id=str(folder), no_dist=ranks.size == 1)


def load_optimiser(folder: Path, model: Any, optimiser: torch.optim.AdamW, ranks: Ranks, seed: int) -> None:
    """Read what `save_optimiser` wrote into a fresh optimiser. Raises OSError, KeyError, ValueError, RuntimeError."""
    known = set(FileSystemReader(str(folder)).read_metadata().state_dict_metadata)
    wanted: dict[str, Any] = {}
    for name, parameter in model.named_parameters():
        if f"{name}.{STEP}" in known:
            moments: dict[str, Tensor] = {key: torch.zeros_like(parameter.detach()) for key in MOMENTS}
            optimiser.state[parameter] = {STEP: torch.zeros(()), **moments}
            wanted |= {f"{name}.{key}": value for key, value in optimiser.state[parameter].items()}
    unknown = {key for key in known if not key.startswith("random.")} - set(wanted)
    if unknown:
        raise KeyError(f"{sorted(unknown)[0]} belongs to no parameter of the model")
    mine = f"random.{ranks.rank}"
    if mine in known:
        wanted[mine] = torch.zeros_like(torch.get_rng_state())
    with _quietly():
        load(wanted, checkpoint_id=str(folder), no_dist=ranks.size == 1)
    if mine in known:
        torch.set_rng_state(wanted[mine])
    else:
        torch.manual_seed(seed + SEED_STRIDE * ranks.rank)


@contextmanager
def _quietly() -> Iterator[None]:
    """One process is what was asked for; torch warns of it each time."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield
