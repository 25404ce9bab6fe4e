"""Any other rank: does what rank 0 says until it is gone. It refuses to decide anything, and knows no events."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from services.kernel.logs import get_logger
from services.trainer.domain.refusal import StepRefused
from services.trainer.ports import HalvesLearner
from services.trainer.ranks.leader import Command, Commands


def follow(learner: HalvesLearner, commands: Commands) -> None:
    """Never returns; raises RuntimeError when the connection to the other ranks is lost."""
    while True:
        command: Command = commands.scatter(None)
        try:
            getattr(learner, command.method)(*command.arguments)
        except StepRefused as refused:
            # All ranks raise it together, and rank 0 answers for it.
            get_logger().info("rank.refused", method=command.method, detail=refused.detail)


class Follower:
    """A part that works until rank 0 has gone, and then ends the process."""

    def __init__(self, work: Callable[[], None], threads: Executor) -> None:
        self._work = work
        self._threads = threads

    async def run(self) -> None:
        """Raises what the work fails with."""
        await asyncio.get_running_loop().run_in_executor(self._threads, self._work)
