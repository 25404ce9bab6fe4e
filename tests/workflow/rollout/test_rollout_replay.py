"""Episodes that are under way survive a new version of the workflow: recorded histories replay without a difference."""

import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, WorkflowRunner
from temporalio.workflow import NondeterminismError

from services.rollout.entrypoints.worker import sandbox
from services.rollout.entrypoints.workflow import EpisodeWorkflow

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))


def recorded(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(path.stem, path.read_text())


def replayer(runner: WorkflowRunner) -> Replayer:
    return Replayer(workflows=[EpisodeWorkflow], workflow_runner=runner)


@pytest.mark.parametrize("runner", [sandbox(), UnsandboxedWorkflowRunner()], ids=["sandbox", "as the service does"])
@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_recorded_history_replays(path: Path, runner: WorkflowRunner):
    await replayer(runner).replay_workflow(recorded(path))


async def test_every_way_to_end_is_recorded():
    # elsewhere_before: a workflow of a version whose open_episode left the end to be written.
    elsewhere = ["elsewhere", "elsewhere_before"]
    names = ["black_box", "cancelled", *elsewhere, "infra", "slow_call", "tool_loop"]
    assert [path.stem for path in HISTORIES] == names


def local_activities(name: str) -> list[str]:
    history = recorded(next(path for path in HISTORIES if path.stem == name))
    markers = [event.marker_recorded_event_attributes.details.get("data") for event in history.events]
    return [json.loads(data.payloads[0].data)["activity_type"] for data in markers if data]


def test_what_was_run_elsewhere_takes_one_step():
    assert local_activities("elsewhere") == ["open_episode"]
    assert local_activities("elsewhere_before") == ["open_episode", "record_end"]


async def test_a_history_of_another_workflow_does_not_replay():
    path = next(path for path in HISTORIES if path.stem == "tool_loop")
    changed = recorded(path)
    for event in changed.events:
        data = event.marker_recorded_event_attributes.details.get("data")
        for payload in data.payloads if data else ():
            payload.data = payload.data.replace(b"serve_turn", b"other_step")
    with pytest.raises(NondeterminismError):
        await replayer(UnsandboxedWorkflowRunner()).replay_workflow(changed)
