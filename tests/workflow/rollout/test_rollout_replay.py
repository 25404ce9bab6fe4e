"""Episodes that are under way survive a new version of the workflow: recorded histories replay without a difference."""

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from services.rollout.entrypoints.worker import workflow_runner
from services.rollout.entrypoints.workflow import EpisodeWorkflow

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))


def recorded(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(path.stem, path.read_text())


def replayer() -> Replayer:
    return Replayer(workflows=[EpisodeWorkflow], workflow_runner=workflow_runner())


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_recorded_history_replays(path: Path):
    await replayer().replay_workflow(recorded(path))


async def test_every_way_to_end_is_recorded():
    assert [path.stem for path in HISTORIES] == ["black_box", "cancelled", "infra", "slow_call", "tool_loop"]


async def test_a_history_of_another_workflow_does_not_replay():
    path = next(path for path in HISTORIES if path.stem == "tool_loop")
    changed = recorded(path)
    for event in changed.events:
        data = event.marker_recorded_event_attributes.details.get("data")
        for payload in data.payloads if data else ():
            payload.data = payload.data.replace(b"serve_turn", b"other_step")
    with pytest.raises(NondeterminismError):
        await replayer().replay_workflow(changed)
