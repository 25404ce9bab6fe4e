"""What the screen makes of numbers."""

import io
from typing import NoReturn, cast

import pytest
from forgerl.gateway.v1 import run_service_pb2 as runs_pb
from forgerl.scheduler.v1 import scheduler_service_pb2 as scheduler_pb
from forgerl.trainer.v1 import policy_service_pb2 as policy_pb
from rich.console import Console

from services.cli.screen.render import closing_line, plain, screen, sparkline
from services.cli.screen.snapshot import Snapshot, take
from services.client import AsyncClient
from services.client.evaluation import DomainResult, EvaluationResult
from services.kernel.errors import ForgeError, NotFound, Transient


def snapshot() -> Snapshot:
    run = runs_pb.RunView(run_id="r", steps=2, episodes_sealed=3, episodes_submitted=5, policy_step=2)
    run.spec.end.steps = 9
    steps = [policy_pb.StepMetrics(step=n, metrics={"reward_mean": n / 10, "success.qa": n / 5}) for n in (1, 2)]
    window = scheduler_pb.WindowState(head=7, window_items=3, wanted_mix={"qa": 1.0}, achieved_mix={"qa": 0.9})
    ledger = scheduler_pb.RunLedger(trained=16, dropped={"no_spread": 8}, staleness_mean=0.5, staleness_max=1)
    return Snapshot(run, window, ledger, steps, ())


def test_a_sparkline_goes_from_the_smallest_to_the_largest():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([5, 5]) == "▁▁" and sparkline([]) == ""
    assert sparkline([0, 0, 7, 7], width=2) == "▁█"


def test_the_plain_line_holds_what_matters():
    assert plain(snapshot(), None) == (
        "watching · step 2 · reward 0.200 · qa 0.40 · episodes 3/5 · head 7 in flight 0 · staleness 0.50"
    )
    assert plain(Snapshot(None, None, None, (), ()), None) == "the gateway does not answer"


def test_the_screen_draws_with_and_without_answers():
    out = io.StringIO()
    console = Console(file=out, width=120)
    console.print(screen(snapshot(), None))
    console.print(screen(Snapshot(None, None, None, (), ()), None))
    text = out.getvalue()
    for part in ("step 2/9", "policy 2", "trained 16", "no_spread 8", "qa 0.90/1.00", "the gateway does not answer"):
        assert part in text


class _Silent:
    """A client of a gateway that answers every question with one error."""

    def __init__(self, error: ForgeError) -> None:
        self._error = error

    async def _refuse(self, *_: str) -> NoReturn:
        raise self._error

    run = window = ledger = metrics = workers = _refuse


@pytest.mark.parametrize(
    ("error", "line"),
    [(NotFound("no such run"), "the run is being set up"), (Transient("away"), "the gateway does not answer")],
)
async def test_a_run_that_is_not_there_yet_is_told_from_a_gateway_that_is_away(error: ForgeError, line: str):
    assert plain(await take(cast("AsyncClient", _Silent(error)), "r"), None) == line


def test_the_closing_line_says_how_it_ended_and_what_was_reached():
    run = runs_pb.RunView(run_id="r", steps=2, episodes_sealed=3, end_reason="steps", metrics={"reward_mean": 0.25})
    before = EvaluationResult(0, {"qa": DomainResult(1, 4, 0), "tool": DomainResult(0, 4, 0)})
    after = EvaluationResult(2, {"qa": DomainResult(3, 4, 0)})
    assert closing_line(run, (before, after)) == (
        "forgerl: run r has ended (steps): 2 steps · 3 episodes · reward 0.250 · held-out qa 0.25 → 0.75 · "
        "held-out tool 0.00"
    )
    bare = runs_pb.RunView(run_id="r", end_reason="stopped")
    assert closing_line(bare, (None, None)) == "forgerl: run r has ended (stopped): 0 steps · 0 episodes"
