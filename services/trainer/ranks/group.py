"""A process group of torch.distributed: what its ranks do together. It refuses to say what is computed.

Every rank makes the same calls in the same order. A refusal of one rank is raised by all, so that none waits.
"""

# torch's distributed modules are partly untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from services.trainer.domain.refusal import StepRefused
from services.trainer.ranks import sharding
from services.trainer.ranks.place import Place

T = TypeVar("T")
BACKEND = "gloo"
IDLE = timedelta(days=365)
"""A follower waits for its next command as long as the run takes; a leader that dies closes the connection."""


class Group:
    """See ports.Ranks."""

    def __init__(self, place: Place) -> None:
        self.rank = place.rank
        self.size = place.size
        self._address = f"tcp://{place.host}:{place.port}"
        self._mesh: DeviceMesh | None = None
        self._commands: dist.ProcessGroup | None = None

    def connect(self, timeout_s: float) -> None:
        """Meet the other ranks; blocks until all are there. `timeout_s`: of each wait within a step."""
        limit = timedelta(seconds=timeout_s)
        dist.init_process_group(BACKEND, self._address, timeout=limit, rank=self.rank, world_size=self.size)
        self._mesh = init_device_mesh("cpu", (self.size,))
        self._commands = cast(dist.ProcessGroup, dist.new_group(timeout=IDLE))

    def leave(self) -> None:
        """Let go of the connections."""
        dist.destroy_process_group()

    def scatter(self, values: Sequence[Any] | None) -> Any:
        """Rank 0 gives one value a rank, the others None; returns this rank's. May wait for ever."""
        received: list[Any] = [None]
        dist.scatter_object_list(received, list(values) if values is not None else None, src=0, group=self._commands)
        return received[0]

    def gather(self, value: T) -> list[T]:
        """See Ranks.gather."""
        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, value)
        return gathered

    def shard(self, model: Any) -> None:
        """See Ranks.shard."""
        assert self._mesh is not None
        sharding.shard(model, self._mesh)

    @contextmanager
    def whole(self, model: Any) -> Iterator[None]:
        """See Ranks.whole."""
        with self._agreed(model):
            yield
        sharding.close_dropped(model)

    @contextmanager
    def summed(self, model: Any) -> Iterator[None]:
        """See Ranks.summed."""
        with self._agreed(model):
            yield
        sharding.close_summed(model)

    def full(self, tensors: Iterator[tuple[str, Tensor]]) -> dict[str, Tensor]:
        """See Ranks.full."""
        kept: dict[str, Tensor] = {}
        for name, tensor in tensors:
            gathered = sharding.full(tensor.detach())
            if self.rank == 0:
                kept[name] = gathered
        return kept

    @contextmanager
    def _agreed(self, model: Any) -> Iterator[None]:
        sharding.open_whole(model)
        refusal = ""
        try:
            yield
        except StepRefused as refused:
            refusal = refused.detail
        refusals = [detail for detail in self.gather(refusal) if detail]
        if refusals:
            sharding.close_dropped(model)
            raise StepRefused(refusals[0])
