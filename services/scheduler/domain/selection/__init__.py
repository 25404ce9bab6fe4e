"""Selection policies: which finished item is taken next. One file a policy, one line here; they share one interface."""

from typing import Protocol

from services.scheduler.domain.selection.windowed_fifo import WindowedFifo


class Selection(Protocol):
    """Knows the finished, not yet consumed positions, in the order in which they finished."""

    def finished(self, position: int, oldest_step: int) -> None:
        """The item at `position` is finished; its oldest token is of policy `oldest_step`."""
        ...

    def consumed(self, position: int) -> None:
        """The item is taken or dropped; a position that never finished may be named too."""
        ...

    def next(self, head: int) -> int | None:
        """The position to consume next, or None when there is none that may be; asking changes nothing."""
        ...

    def __len__(self) -> int:
        """Finished positions, hidden ones included."""
        ...


def make_selection(name: str, window_items: int) -> Selection:
    """The policy of that name. Raises ValueError."""
    match name:
        case "windowed_fifo":
            return WindowedFifo(window_items)
        case _:
            raise ValueError(f"selection: given {name!r}; allowed windowed_fifo")
