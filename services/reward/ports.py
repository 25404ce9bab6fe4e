"""What the reward service needs from outside. It refuses to name an adapter."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from forgerl.common.v1.task_pb2 import Task

Message = Mapping[str, object]


class GraderError(Exception):
    """The verifier raised, hung, answered nonsense, or is unknown: no reward, which is not a zero."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class Verifier(Protocol):
    """Judges answers by the environment that a task names."""

    async def verify(self, task: Task, answer: str, transcript: Sequence[Message]) -> tuple[float, str]:
        """Performance in [0, 1], and one line that says why. Raises GraderError."""
        ...

    async def tool_names(self, task: Task) -> frozenset[str]:
        """Tools that the task offered. Raises GraderError."""
        ...
