"""One process that trains by itself: nothing is shared, and nothing is paid for."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from torch import Tensor

T = TypeVar("T")


class Alone:
    """See ports.Ranks."""

    rank = 0
    size = 1

    def gather(self, value: T) -> list[T]:
        """See Ranks.gather."""
        return [value]

    def shard(self, model: Any) -> None:
        """See Ranks.shard."""

    def whole(self, model: Any) -> AbstractContextManager[None]:
        """See Ranks.whole."""
        return nullcontext()

    def summed(self, model: Any) -> AbstractContextManager[None]:
        """See Ranks.summed."""
        return nullcontext()

    def full(self, tensors: Iterator[tuple[str, Tensor]]) -> dict[str, Tensor]:
        """See Ranks.full."""
        return {name: tensor.detach() for name, tensor in tensors}
