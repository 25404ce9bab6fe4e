"""Any other rank: does what rank 0 says until it is gone. It refuses to decide anything, and knows no events."""

import asyncio
import threading
from collections.abc import Callable

from services.kernel.logs import get_logger
from services.trainer.domain.refusal import StepRefused
from services.trainer.ports import HalvesLearner
from services.trainer.ranks.leader import Command, Commands


def follow(learner: HalvesLearner, commands: Commands) -> None:
    """Never returns; raises when the connection to the other ranks is lost."""
    while True:
        command: Command = commands.scatter(None)
        try:
            getattr(learner, command.method)(*command.arguments)
        except StepRefused as refused:
            # All ranks raise it together, and rank 0 answers for it.
            get_logger().info("rank.refused", method=command.method, detail=refused.detail)


class Follower:
    """A part that follows; it ends when rank 0 has gone, and with it the process."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    async def run(self) -> None:
        """Runs until the work fails."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def work() -> None:
            try:
                self._work()
            except Exception as error:
                loop.call_soon_threadsafe(_fail, ended, error)

        # A daemon: nothing can wake a thread that waits for another process, and the process must be able to end.
        threading.Thread(target=work, name="torch", daemon=True).start()
        await ended


def _fail(ended: "asyncio.Future[None]", error: Exception) -> None:
    if not ended.done():
        ended.set_exception(error)
