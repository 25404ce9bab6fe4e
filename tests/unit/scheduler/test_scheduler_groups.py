"""Membership, eligibility, drops, deadlines, cancellation and the end of a run, worked by hand with groups."""

import pytest
from scheduler_rig import CONFIG, Rig, admitted, batches, dropped, taken

from services.scheduler.domain import facts
from services.scheduler.domain.config import RunConfig
from services.scheduler.domain.decisions import Revoke


def groups(count: int = 3, **changes: object) -> Rig:
    rig = Rig(**{"group_size": 3, "items_per_batch": 1, **changes})
    for index in range(count):
        rig.submit_group(f"g{index}")
    return rig


def revoked(decisions: list[object]) -> list[tuple[str, str]]:
    return [(d.episode_id, d.reason) for d in decisions if isinstance(d, Revoke)]


def test_a_group_closes_at_its_size_and_late_comers_are_refused() -> None:
    rig = Rig(group_size=3)
    assert rig.submit("x", "y", group="g") == []
    assert admitted(rig.submit("z", group="g")) == [0]
    assert revoked(rig.submit("late", group="g")) == [("late", "group_closed")]
    assert rig.state.tally.dropped == {"group_closed": 1}
    assert len(rig.state.items["g"].members) == 3


def test_a_repeated_submission_changes_nothing() -> None:
    rig = Rig(group_size=3)
    rig.submit("x", "x", group="g")
    assert rig.state.tally.submitted == 1
    assert len(rig.state.items["g"].members) == 1


def test_order_of_finished_sealed_and_scored_does_not_matter() -> None:
    rig = groups(1, group_size=1)
    assert rig.feed(facts.Scored("g0.0", 1.0, "solved", b"")) == []
    assert rig.feed(facts.Sealed("g0.0", b"", 5, 0)) == []
    assert taken(rig.feed(facts.Finished("g0.0", 1, 1.0))) == [0]


def test_group_without_spread_is_dropped_with_its_reason() -> None:
    rig = groups()
    assert dropped(rig.finish_group("g0", 0.5, 0.505, 0.509)) == [(0, "no_spread")]
    assert rig.state.tally.dropped == {"no_spread": 3}
    assert taken(rig.finish_group("g1", 0.5, 0.505, 0.52)) == [1]


def test_group_with_one_eligible_member_is_dropped() -> None:
    rig = groups()
    rig.fail("g0.0")
    rig.feed(facts.ScoringFailed("g0.1"))
    assert dropped(rig.finish("g0.2")) == [(0, "too_few_eligible")]
    assert rig.state.tally.dropped == {"infra": 1, "grader_error": 1, "too_few_eligible": 1}


def test_partial_group_is_trained_over_its_real_members() -> None:
    rig = groups()
    rig.fail("g0.1")
    rig.finish("g0.0", 1.0)
    assert taken(rig.finish("g0.2", 0.0)) == [0]
    assert rig.state.tally.dropped == {"infra": 1}
    rig.feed(facts.StepDone(1, ()))
    assert rig.state.tally.trained == 2


def test_the_trainers_report_decides_who_was_trained() -> None:
    rig = groups()
    rig.finish_group("g0", 1.0, 0.0, 0.0)
    reports = (
        facts.TrainedEpisode("g0.0", True, "", 0.5, 10, 1.0),
        facts.TrainedEpisode("g0.1", False, "stale_span", 0.0, 0, 0.0),
        facts.TrainedEpisode("g0.2", True, "", -0.5, 10, 0.0),
    )
    rig.feed(facts.StepDone(1, reports))
    assert (rig.state.tally.trained, rig.state.tally.dropped) == (2, {"stale_span": 1})
    assert rig.state.batches == {}


def test_refused_step_drops_its_episodes() -> None:
    rig = groups(1)
    rig.finish_group("g0")
    rig.feed(facts.StepFailed(1, "mismatch"))
    assert rig.state.tally.dropped == {"step_failed": 3}


def test_an_episode_without_tokens_is_not_eligible() -> None:
    rig = groups(1)
    rig.finish("g0.0", 1.0)
    rig.finish("g0.1", 0.0)
    rig.finish("g0.2", 0.0, tokens=0)
    assert [m.why_not for m in rig.state.batches[1][0].members] == ["", "", "no_tokens"]


def test_grader_error_is_rescorable_until_the_item_is_consumed() -> None:
    rig = groups(2, window_items=1)
    for episode, performance in (("g1.0", 1.0), ("g1.1", 0.0)):
        rig.finish(episode, performance)
    rig.feed(facts.Finished("g1.2", 1, 1.0))
    rig.feed(facts.Sealed("g1.2", b"", 5, 0))
    rig.feed(facts.ScoringFailed("g1.2"))
    assert rig.state.items["g1"].finished
    rig.feed(facts.Scored("g1.2", 1.0, "solved", b""))
    assert [m.why_not for m in rig.state.items["g1"].members] == ["", "", ""]
    rig.finish_group("g0")
    assert rig.state.tally.dropped == {}


def test_rescoring_can_save_a_doomed_item() -> None:
    rig = groups(2, window_items=1, group_size=2)
    rig.finish("g1.0", 1.0)
    rig.feed(facts.Finished("g1.1", 1, 1.0))
    rig.feed(facts.Sealed("g1.1", b"", 5, 0))
    rig.feed(facts.ScoringFailed("g1.1"))
    assert (rig.state.doomed, rig.state.items["g1"].doom) == (1, "too_few_eligible")
    rig.feed(facts.Scored("g1.1", 0.0, "wrong", b""))
    assert (rig.state.doomed, rig.state.items["g1"].doom) == (0, "")
    assert taken(rig.finish_group("g0")) == [0, 1]


def test_one_sleeping_member_does_not_hold_the_batch_beyond_its_deadline() -> None:
    rig = groups(2, items_per_batch=2, deadline_s=60.0)
    rig.finish_group("g1")
    rig.finish("g0.0", 1.0)
    rig.finish("g0.1", 0.0)
    rig.now_s += 59
    assert rig.feed(facts.Ticked()) == []
    decided = rig.wait(1)
    assert revoked(decided) == [("g0.2", "deadline")]
    assert (taken(decided), batches(decided)) == ([0], [1])
    assert rig.finish("g0.2") == [], "what comes after the deadline is recorded, not trained"
    assert rig.state.tally.dropped == {"deadline": 1}


def test_item_of_which_every_member_missed_its_deadline() -> None:
    rig = groups(1)
    decided = rig.wait(60)
    assert len(revoked(decided)) == 3
    assert dropped(decided) == [(0, "deadline")]


def test_next_deadline_belongs_to_somebody_still_running() -> None:
    rig = groups(1)
    rig.now_s += 5
    rig.submit_group("g9")
    assert rig.state.next_deadline_s == 1060
    rig.finish_group("g0")
    assert rig.state.next_deadline_s == 1065
    rig.finish_group("g9")
    assert rig.state.next_deadline_s is None


def test_cancelling_a_running_member_revokes_it() -> None:
    rig = groups(1)
    assert revoked(rig.feed(facts.Cancelled("g0.1"))) == [("g0.1", "cancelled")]
    assert revoked(rig.feed(facts.Cancelled("g0.1"))) == [], "a second time changes nothing"
    rig.finish("g0.0", 1.0)
    assert taken(rig.finish("g0.2", 0.0)) == [0]
    assert rig.state.tally.dropped == {"cancelled": 1}


def test_cancelled_before_admission_never_runs() -> None:
    rig = Rig(group_size=2, in_flight_items=1, items_per_batch=1)
    for group in ("g0", "g1", "g2"):
        rig.submit_group(group)
    rig.feed(facts.Cancelled("g1.0"))
    assert rig.feed(facts.Cancelled("g2.0")) == []
    assert dropped(rig.feed(facts.Cancelled("g2.1"))) == [(None, "cancelled")]
    assert admitted(rig.finish_group("g0")) == [1]
    assert [m.admitted for m in rig.state.items["g1"].members] == [False, True]


def test_cancelled_before_the_run_is_known() -> None:
    rig = Rig(opened=False, group_size=2, items_per_batch=1)
    rig.submit_group("g0")
    rig.feed(facts.Cancelled("g0.0"))
    rig.feed(facts.PolicyPublished(0))
    assert rig.state.tally.submitted == 0
    assert admitted(rig.feed(facts.RunOpened(rig.config))) == [0]
    assert [m.admitted for m in rig.state.items["g0"].members] == [False, True]


def test_nothing_runs_before_a_policy_is_published() -> None:
    rig = Rig(opened=False)
    rig.feed(facts.RunOpened(rig.config))
    assert rig.submit("e0") == []
    assert admitted(rig.feed(facts.PolicyPublished(0))) == [0]


def test_unknown_domain_is_refused() -> None:
    rig = Rig()
    assert revoked(rig.submit("e0", domain="b")) == [("e0", "unknown_domain")]


def test_the_end_of_a_run_settles_everybody() -> None:
    rig = groups(4, in_flight_items=2, items_per_batch=2)
    rig.finish_group("g0")  # taken into a batch that will not be full
    rig.submit("half.0", group="half")
    decided = rig.feed(facts.RunEnded("stopped"))
    assert revoked(decided) == [(f"g{i}.{j}", "run_ended") for i in (1, 2) for j in range(3)]
    assert dropped(decided) == [
        (0, "run_ended"),
        (1, "run_ended"),
        (2, "run_ended"),
        (None, "run_ended"),
        (None, "run_ended"),
    ]
    assert rig.state.members == {}
    assert rig.state.tally.dropped == {"run_ended": 13}
    assert (rig.state.in_flight, len(rig.state.queue), rig.state.head) == (0, 0, 3)
    assert revoked(rig.submit("late", group="new")) == [("late", "run_ended")]


def test_a_batch_that_is_being_trained_outlives_the_end() -> None:
    rig = groups(1)
    rig.finish_group("g0")
    rig.feed(facts.RunEnded("stopped"))
    assert len(rig.state.members) == 3
    rig.step(1)
    assert rig.state.tally.trained == 3


def test_a_resumed_run_goes_on_where_it_stopped() -> None:
    rig = groups(1, end_steps=1)
    rig.finish_group("g0")
    rig.step(1)
    rig.feed(facts.RunEnded("steps"))
    rig.feed(facts.RunReopened(2))
    assert admitted(rig.submit_group("g1")) == [1]
    assert batches(rig.finish_group("g1", step=1)) == [2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"window_items": 11}, "window_items: given 11; allowed 1..10"),
        ({"window_items": 0}, "window_items: given 0; allowed 1 or more"),
        ({"deadline_s": 0.0}, "deadline_s: given 0.0; allowed above 0"),
        ({"domains": (("a", 0.0),)}, "domains: given"),
    ],
)
def test_numbers_under_which_the_queue_could_not_move_are_refused(change: dict[str, object], message: str) -> None:
    known = {name: getattr(CONFIG, name) for name in CONFIG.__dataclass_fields__}
    with pytest.raises(ValueError, match=message):
        RunConfig(**{**known, **change})
