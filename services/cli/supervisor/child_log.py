"""Where a child's lines go: its own file, the terminal with its name in front, and the last few in memory."""

from collections import deque
from collections.abc import Callable
from pathlib import Path

Echo = Callable[[str, str], None]
_KEPT_LINES = 30
_LARGEST_BYTES = 64 << 20


class ChildLog:
    """Append one line at a time. The file of the start before is kept as `.1`."""

    def __init__(self, name: str, path: Path, echo: Echo | None) -> None:
        self._name, self._path, self._echo = name, path, echo
        self._last: deque[str] = deque(maxlen=_KEPT_LINES)
        self._turn_over()

    def _turn_over(self) -> None:
        if self._path.exists():
            self._path.replace(self._path.with_suffix(".log.1"))
        self._out = self._path.open("ab", buffering=0)
        self._size_bytes = 0

    def write(self, line: bytes) -> None:
        if self._size_bytes > _LARGEST_BYTES:
            self._out.close()
            self._turn_over()
        self._size_bytes += self._out.write(line.rstrip(b"\n") + b"\n") or 0
        text = line.decode(errors="replace").rstrip()
        self._last.append(text)
        if self._echo:
            self._echo(self._name, text)

    def note(self, text: str) -> None:
        """A line of the supervisor's own."""
        self.write(f"[up] {text}".encode())

    def last_lines(self) -> tuple[str, ...]:
        return tuple(self._last)

    def close(self) -> None:
        self._out.close()
