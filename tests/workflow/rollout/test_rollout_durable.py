"""Episodes on a real Temporal server: cancelled, revoked, and with a worker that is killed in the middle."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from forgerl.events.v1.scheduler_pb2 import EpisodeAdmitted, EpisodeRevoked
from rollout_scripted import MemoryJournal, ScriptedModel, episodes, said
from temporalio.client import Client

from services.kernel.envelope import Cause, Event
from services.rollout.domain.episode import Outcome
from services.rollout.entrypoints.activities import EpisodeActivities
from services.rollout.entrypoints.consumer import AdmissionConsumer
from services.rollout.entrypoints.worker import EpisodeWorker

CAUSE = Cause("corr-1", "", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")


def event(message: EpisodeAdmitted | EpisodeRevoked, version: int) -> Event:
    stream = f"scheduler.admission/{message.episode_id}"
    return Event(stream, version, datetime(2026, 1, 1, tzinfo=UTC), message, CAUSE)


def admitted(episode_id: str) -> Event:
    return event(EpisodeAdmitted(episode_id=episode_id, run_id="run-1"), 1)


def revoked(episode_id: str) -> Event:
    return event(EpisodeRevoked(episode_id=episode_id, run_id="run-1", reason="deadline"), 2)


def consumer_on(client: Client, foreseen: list[str] | None = None) -> AdmissionConsumer:
    async def foresee(episode_ids: Sequence[str]) -> None:
        if foreseen is not None:
            foreseen.extend(episode_ids)

    return AdmissionConsumer(client, "episodes", 30.0, 60.0, foresee)


async def test_admissions_start_each_episode_once_however_often_they_come(dev_client: Client):
    journal = MemoryJournal()
    consumer = consumer_on(dev_client)
    parts = episodes(ScriptedModel([said("42")]), journal=journal)
    async with EpisodeWorker(dev_client, "episodes", EpisodeActivities(parts), 64, sandboxed=True).build():
        names = [f"ep-{number}" for number in range(20)]
        for _ in range(2):
            assert await consumer.handle([admitted(name) for name in names]) == ()
            results = [dev_client.get_workflow_handle(name).result() for name in names]
            assert await asyncio.wait_for(asyncio.gather(*results), 60) == [Outcome.COMPLETED] * 20
    assert journal.started == dict.fromkeys(names, 1) and set(journal.ends) == set(names)


async def test_a_task_may_last_as_long_as_a_turn_and_is_warned_of_when_it_is_lost(dev_client: Client, monkeypatch):
    variable = "TEMPORAL_WORKFLOW_TASK_DURATION_WARN_SECONDS"
    monkeypatch.setenv(variable, "gone with the test")
    monkeypatch.delenv(variable)
    parts = episodes(ScriptedModel([said("42")]), journal=MemoryJournal())
    async with EpisodeWorker(dev_client, "episodes", EpisodeActivities(parts), 64, sandboxed=True).build():
        await consumer_on(dev_client).handle([admitted("ep-1")])
        handle = dev_client.get_workflow_handle("ep-1")
        await asyncio.wait_for(handle.result(), 60)
        started = (await handle.fetch_history()).events[0].workflow_execution_started_event_attributes
    assert started.workflow_task_timeout.ToSeconds() == 20
    assert os.environ[variable] == "20"


async def test_a_revocation_ends_a_running_episode_as_cancelled(dev_client: Client):
    journal = MemoryJournal()
    consumer = consumer_on(dev_client)
    model = ScriptedModel([600.0, said("never")])
    parts = episodes(model, journal=journal)
    async with EpisodeWorker(dev_client, "episodes", EpisodeActivities(parts), 64, sandboxed=True).build():
        await consumer.handle([admitted("ep-1")])
        await consumer.handle([revoked("ep-1")])
        outcome = await asyncio.wait_for(dev_client.get_workflow_handle("ep-1").result(), 30)
    assert outcome == Outcome.CANCELLED and journal.ends["ep-1"].outcome == Outcome.CANCELLED


async def test_revoking_what_never_ran_or_is_over_is_nothing(dev_client: Client):
    journal = MemoryJournal()
    foreseen: list[str] = []
    consumer = consumer_on(dev_client, foreseen)
    parts = episodes(ScriptedModel([said("42")]), journal=journal)
    async with EpisodeWorker(dev_client, "episodes", EpisodeActivities(parts), 64, sandboxed=True).build():
        await consumer.handle([revoked("unknown")])
        await consumer.handle([admitted("ep-1")])
        await asyncio.wait_for(dev_client.get_workflow_handle("ep-1").result(), 30)
        await consumer.handle([revoked("ep-1")])
    assert journal.ends["ep-1"].outcome == Outcome.COMPLETED
    assert foreseen == ["ep-1"]


async def test_a_worker_killed_in_the_middle_changes_nothing(dev_client: Client, dev_server: str, tmp_path: Path):
    """The first worker dies while the model answers the second turn; the next one ends the episode, once."""
    script = str(Path(__file__).with_name("killable_worker.py"))
    store = f"sqlite:///{tmp_path}/rollout.db"

    async def worker(name: str) -> asyncio.subprocess.Process:
        arguments = [script, dev_server, store, str(tmp_path / name)]
        return await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
        )

    first = await worker("first")
    consumer = consumer_on(dev_client)
    await consumer.handle([admitted("ep-1")])
    assert first.stdout is not None
    line = await asyncio.wait_for(first.stdout.readline(), 60)
    assert line == b"second turn\n"
    os.kill(first.pid, signal.SIGKILL)
    await first.wait()
    second = await worker("second")
    try:
        assert await asyncio.wait_for(dev_client.get_workflow_handle("ep-1").result(), 60) == Outcome.COMPLETED
    finally:
        second.kill()
        await second.wait()
    told = json.loads((tmp_path / "second").read_text())
    # The tool ran in the first worker only: its answer was in the journal.
    assert told["tools"] == 0 and told["keys"][-1] == "ep-1/1/1"
    assert told["events"] == ["EpisodeStarted", "EpisodeFinished"]
