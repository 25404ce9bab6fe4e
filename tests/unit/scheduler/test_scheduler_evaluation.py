"""Evaluation goes first, runs only on its policy, holds batches back, and is never trained."""

from scheduler_rig import Rig, admitted, batches

from services.scheduler.domain import facts
from services.scheduler.domain.decisions import AdmitEvaluation, Decision, Revoke


def evaluate(rig: Rig, episode_id: str, step: int) -> list[Decision]:
    return rig.feed(facts.Submitted(episode_id, "", "a", pinned_step=step))


def running(decisions: list[Decision]) -> list[str]:
    return [d.episode_id for d in decisions if isinstance(d, AdmitEvaluation)]


def test_evaluation_runs_on_the_newest_policy_only() -> None:
    rig = Rig(opened=False)
    rig.feed(facts.RunOpened(rig.config))
    assert evaluate(rig, "v0", 0) == []
    assert evaluate(rig, "v1", 1) == []
    assert running(rig.feed(facts.PolicyPublished(0))) == ["v0"]
    decided = rig.feed(facts.PolicyPublished(1))
    assert decided[0] == Revoke("v0", "policy_replaced")
    assert running(decided) == ["v1"]


def test_evaluation_of_a_policy_that_is_gone_is_revoked_at_once() -> None:
    rig = Rig()
    rig.feed(facts.PolicyPublished(3))
    assert evaluate(rig, "v", 2) == [Revoke("v", "policy_replaced")]
    assert rig.state.evaluations == {}
    assert rig.state.evaluations_waiting == {}


def test_evaluation_goes_first_and_shares_the_capacity() -> None:
    rig = Rig(group_size=2, in_flight_items=2)  # four episodes at once
    rig.submit_group("g0")
    rig.submit_group("g1")
    rig.submit_group("g2")
    assert evaluate(rig, "v0", 0) == [], "all places are taken"
    decided = rig.finish_group("g0")
    assert running(decided) == ["v0"]
    assert admitted(decided) == [], "one place is left: too few for a group of two"
    assert admitted(rig.finish("v0")) == [2]


def test_batches_wait_for_evaluation_of_the_newest_policy() -> None:
    rig = Rig(items_per_batch=1)
    evaluate(rig, "v0", 0)
    rig.submit("e0")
    assert batches(rig.finish("e0")) == [], "taken, but a step would replace the policy"
    assert batches(rig.finish("v0")) == [1]


def test_batches_do_not_wait_for_evaluation_of_a_later_policy() -> None:
    rig = Rig(items_per_batch=1)
    evaluate(rig, "v1", 1)
    rig.submit("e0")
    assert batches(rig.finish("e0")) == [1]


def test_evaluation_is_counted_apart_and_ends_by_deadline_or_cancellation() -> None:
    rig = Rig()
    for name in ("v0", "v1", "v2"):
        evaluate(rig, name, 0)
    rig.feed(facts.Cancelled("v1"))
    assert rig.state.evaluations_in_flight == 2
    rig.finish("v0")
    assert rig.wait(60) == [Revoke("v2", "deadline")]
    assert (rig.state.tally.submitted, rig.state.tally.evaluations) == (0, 3)
    assert (rig.state.evaluations, rig.state.evaluations_in_flight) == ({}, 0)


def test_evaluation_goes_on_after_the_end() -> None:
    rig = Rig()
    rig.feed(facts.RunEnded("steps"))
    assert running(evaluate(rig, "v0", 0)) == ["v0"]
    rig.feed(facts.RunRemoved())
    assert rig.state.evaluations == {}
    assert evaluate(rig, "v1", 0) == [Revoke("v1", "run_removed")]
