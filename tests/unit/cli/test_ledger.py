"""`forgerl ledger` and `forgerl why`: the sum of the books, each domain's share, every line with its event."""

import json

import pytest
from forgerl.scheduler.v1 import scheduler_service_pb2 as pb

from services.cli import ledger_command
from services.cli.ledger_command import explain_episode, show_ledger

BOOK = pb.DomainLedger(
    wanted_share=0.25, submitted_share=0.2, consumed_share=0.26, consumed_items=10, taken_items=6, submitted_groups=12
)
BOOK.dropped_items.update({"no_spread": 3, "deadline": 1})
LEDGER = pb.RunLedger(submitted=20, trained=9, in_flight=7, balanced=True, domains={"code": BOOK})
LEDGER.dropped.update({"no_spread": 3, "infra": 1})
LEDGER.in_flight_by_stage.update({"queued": 4, "running": 3})
WHY = pb.EpisodeLedger(episode_id="e", run_id="r", verdict="trained")
WHY.lines.add(event_id="gateway.episode/e@1", fact="submitted: domain code, group g")


class Answers:
    """A client that knows one run."""

    def __init__(self, instance: str | None) -> None:
        assert instance == "here"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def ledger(self, run_id: str) -> pb.RunLedger:
        assert run_id == "r"
        return LEDGER

    def why(self, episode_id: str) -> pb.EpisodeLedger:
        assert episode_id == "e"
        return WHY


@pytest.fixture(autouse=True)
def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_command, "Client", Answers)
    monkeypatch.setenv("COLUMNS", "140")


def test_the_sum_and_each_domain(capsys: pytest.CaptureFixture[str]) -> None:
    show_ledger("here", "r", as_json=False)
    said = capsys.readouterr().out
    assert "20 submitted = 9 trained + 4 dropped + 7 in flight" in said
    assert "in flight: queued 4, running 3" in said
    row = next(line for line in said.splitlines() if line.strip().startswith("code"))
    assert row.split() == ["code", "25.0%", "20.0%", "26.0%", "10", "6", "3", "1"]


def test_what_is_pruned_is_counted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    show_ledger("here", "r", as_json=False)
    assert "pruned" not in capsys.readouterr().out
    fewer = pb.RunLedger()
    fewer.CopyFrom(LEDGER)
    fewer.pruned = 5
    monkeypatch.setattr(Answers, "ledger", lambda *_: fewer)
    show_ledger("here", "r", as_json=False)
    assert "5 pruned" in capsys.readouterr().out


def test_books_that_do_not_add_up_are_not_called_equal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    off = pb.RunLedger()
    off.CopyFrom(LEDGER)
    off.balanced = False
    monkeypatch.setattr(Answers, "ledger", lambda self, run_id: off)
    show_ledger("here", "r", as_json=False)
    assert "20 submitted is not 9 trained" in capsys.readouterr().out


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    show_ledger("here", "r", as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["balanced"], found["domains"]["code"]["dropped_items"]["no_spread"]) == (True, "3")
    assert found["evaluations"] == "0", "what is nought is said too"
    explain_episode("here", "e", as_json=True)
    assert json.loads(capsys.readouterr().out)["lines"][0]["event_id"] == "gateway.episode/e@1"


def test_why_names_the_event_of_each_line(capsys: pytest.CaptureFixture[str]) -> None:
    explain_episode("here", "e", as_json=False)
    said = capsys.readouterr().out
    assert "submitted: domain code, group g  gateway.episode/e@1" in said
    assert said.splitlines()[-1] == "trained"
