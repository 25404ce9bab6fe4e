"""`forgerl show` of an episode whose text is gone: when it was pruned and where that is recorded, or the error."""

import pytest
from forgerl.common.v1.score_pb2 import Score
from forgerl.gateway.v1 import episode_service_pb2 as episodes_pb
from forgerl.scheduler.v1 import scheduler_service_pb2 as scheduler_pb

from services.cli import episode_command
from services.kernel.errors import Permanent


class Client:
    """A stack that knows the episode and has lost its trajectory; `fact` is what its ledger says last."""

    fact = "trajectory pruned: closed 4 steps ago or longer"

    def __init__(self, instance: str | None) -> None:
        del instance

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None: ...

    def episode(self, episode_id: str) -> episodes_pb.EpisodeView:
        score = Score(performance=1.0, failure_class="solved")
        state = episodes_pb.EPISODE_STATE_SCORED
        return episodes_pb.EpisodeView(submission={"episode_id": episode_id}, state=state, score=score, answer="42")

    def transcript(self, episode_id: str) -> episodes_pb.Transcript:
        raise Permanent(f"blob of {episode_id} is missing")

    def why(self, episode_id: str) -> scheduler_pb.EpisodeLedger:
        told = scheduler_pb.EpisodeLedger(episode_id=episode_id)
        line = told.lines.add(event_id="scheduler.queue/r@77", fact=self.fact)
        line.time.FromSeconds(1_767_225_600)
        return told


def test_it_says_when_and_by_which_record(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(episode_command, "Client", Client)
    monkeypatch.setenv("COLUMNS", "200")
    episode_command.show_episode(None, "e")
    said = capsys.readouterr().out
    assert "e · scored · performance 1.00 (solved)" in said
    assert (
        "pruned at 2026-01-01 00:00:00 (scheduler.queue/r@77): trajectory pruned: closed 4 steps ago or longer" in said
    )
    assert "answer 42" in said


def test_what_is_lost_without_a_record_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_command, "Client", Client)
    monkeypatch.setattr(Client, "fact", "sealed: 3 sampled tokens of policy 0")
    with pytest.raises(Permanent, match="blob of e is missing"):
        episode_command.show_episode(None, "e")
