"""A model whose parameters and gradients lie in parts over the ranks (FSDP2), whole only while a batch is computed.

Ranks may run as many forward and backward passes as their rows need, none included: parameters are gathered before
the first and gradients are reduced after the last, so no pass waits for another rank. The price: while it computes,
a process holds all weights and one whole gradient; what lies in parts is weights, optimiser and gradient in between.
"""

# torch's distributed modules are partly untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor


def shard(model: Any, mesh: DeviceMesh) -> None:
    """Keep this rank's part of every parameter, layer by layer. All ranks must hold equal weights."""
    layers = set(getattr(model, "_no_split_modules", None) or ())
    for module in list(model.modules()):
        if type(module).__name__ in layers:
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for unit in units(model):
        # The objective's weights hold the global denominator, so gradients are added and never averaged.
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)
    with torch.no_grad():
        _touch(model)
    close(model)


def units(model: Any) -> list[FSDPModule]:
    """The sharded modules, the root first."""
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def open_whole(model: Any) -> None:
    """Gather all parameters; gradients stay with this process from here on."""
    model.set_requires_gradient_sync(False)
    model.set_reshard_after_forward(False)
    model.set_reshard_after_backward(False)
    for unit in units(model):
        unit.unshard()


def close_summed(model: Any) -> None:
    """Add up the ranks' gradients, each rank keeping its part, and let go of the other ranks' parameters."""
    model.set_requires_gradient_sync(True)
    model.set_reshard_after_backward(True)
    # The reduction hangs on a backward pass: one token, whose gradient is zero, is one that every rank can make.
    (_touch(model) * 0).backward()
    close(model)


def close_dropped(model: Any) -> None:
    """Forget this process's gradients, and let go of the other ranks' parameters."""
    model.zero_grad(set_to_none=True)
    model.reset_iter_state()
    close(model)


def close(model: Any) -> None:
    """Let go of the other ranks' parameters."""
    for unit in units(model):
        unit.reshard()


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor; an ordinary tensor is its own part."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def full(tensor: Tensor) -> Tensor:
    """All of a tensor, at every rank: a call that all ranks make."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _touch(model: Any) -> Tensor:
    device = next(model.parameters()).device
    logits: Tensor = model(input_ids=torch.zeros(1, 1, dtype=torch.long, device=device), use_cache=False).logits
    return logits.sum()
