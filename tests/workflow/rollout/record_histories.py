"""Records the histories that the replay test replays: run by hand after a deliberate change of the workflow.

python tests/workflow/rollout/record_histories.py HOST:PORT [NAME ...]     (a Temporal dev server)
"""

import asyncio
import re
import sys
from pathlib import Path

from rollout_scripted import ScriptedGateway, ScriptedModel, ScriptedPrograms, asks, episodes, said
from temporalio.client import Client

from services.kernel.errors import Permanent, Transient
from services.rollout.application import Episodes
from services.rollout.domain.episode import EpisodeStart
from services.rollout.entrypoints.activities import EpisodeActivities
from services.rollout.entrypoints.worker import EpisodeWorker
from services.rollout.entrypoints.workflow import EpisodeWorkflow
from services.rollout.ports import ProgramEnd, Recorded

FOLDER = Path(__file__).parent / "histories"
ANSWERED = ProgramEnd('{"answer": "7"}\n', 0, False, 2.5, 2, 200, "")


def scenarios() -> dict[str, Episodes]:
    """One a history."""
    elsewhere = ScriptedGateway(recorded=Recorded(1, "41", 7.5))
    box = ScriptedGateway(agent="script", agent_timeout_s=20.0)
    return {
        "tool_loop": episodes(ScriptedModel([asks("6*7"), said("42")])),
        "slow_call": episodes(ScriptedModel([12.0, Transient("engine away"), said("42")])),
        "infra": episodes(ScriptedModel([Permanent("a bad request")])),
        "black_box": episodes(
            ScriptedModel([said("")]), gateway=box, programs=ScriptedPrograms([Transient("box lost"), ANSWERED])
        ),
        "elsewhere": episodes(ScriptedModel([said("")]), gateway=elsewhere),
        "cancelled": episodes(ScriptedModel([600.0, said("never")])),
    }


def without_traces(history: str) -> str:
    """The history without stack traces: they hold this machine's paths, and replay doesn't read them."""
    return re.sub(r'"stackTrace": "(?:[^"\\]|\\.)*"', '"stackTrace": ""', history) + "\n"


async def main(address: str, *names: str) -> None:
    """Run each scenario, or those that are named, to its end and keep its history."""
    client = await Client.connect(address, identity="recorder")
    for name, parts in ((name, parts) for name, parts in scenarios().items() if not names or name in names):
        async with EpisodeWorker(client, name, EpisodeActivities(parts), 8, sandboxed=True).build():
            start = EpisodeStart(name, "run-1", 30.0, 60.0)
            handle = await client.start_workflow(EpisodeWorkflow.run, start, id=name, task_queue=name)
            if name == "cancelled":
                await handle.cancel()
            await handle.result()
            history = await handle.fetch_history()
            await asyncio.to_thread((FOLDER / f"{name}.json").write_text, without_traces(history.to_json()))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
