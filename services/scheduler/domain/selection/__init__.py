"""Selection policies: which finished item is taken next. One file a policy, one line here; they share one interface."""

from typing import Protocol

from services.scheduler.domain.config import RunConfig
from services.scheduler.domain.selection.greedy import Greedy
from services.scheduler.domain.selection.strict_fifo import StrictFifo
from services.scheduler.domain.selection.version_window import VersionWindow
from services.scheduler.domain.selection.windowed_fifo import WindowedFifo


class Selection(Protocol):
    """Knows the finished, not yet consumed positions, in the order in which they finished."""

    def finished(self, position: int, oldest_step: int) -> None:
        """The item at `position` is finished; its oldest token is of policy `oldest_step`."""
        ...

    def consumed(self, position: int) -> None:
        """The item is taken or dropped; a position that never finished may be named too."""
        ...

    def next(self, head: int, step: int) -> int | None:
        """The position to consume next into a batch that is trained from policy `step`, or None when there is none
        that may be; asking changes nothing.
        """
        ...

    def resize(self, window_items: int) -> None:
        """The window holds so many items from now on; means nothing to a policy without one."""
        ...

    def __len__(self) -> int:
        """Finished positions, hidden ones included."""
        ...


def make_selection(config: RunConfig) -> Selection:
    """The policy that a run asks for. Raises ValueError for one that there is not."""
    match config.selection:
        case "windowed_fifo":
            return WindowedFifo(config.window_items)
        case "strict_fifo":
            return StrictFifo()
        case "greedy":
            return Greedy()
        case "version_window":
            return VersionWindow(config.version_window_steps)
        case unknown:
            allowed = "windowed_fifo, strict_fifo, greedy, version_window"
            raise ValueError(f"selection: given {unknown!r}; allowed {allowed}")
