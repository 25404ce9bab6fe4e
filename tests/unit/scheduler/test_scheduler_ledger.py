"""The "why" ledger of an episode, told from the entries that concern it."""

import pytest
from scheduler_rig import Rig

from services.scheduler.domain import facts
from services.scheduler.domain.books import balanced
from services.scheduler.domain.decisions import Revoke
from services.scheduler.domain.ledger import Story


def story(rig: Rig, episode_id: str) -> Story:
    told = Story(episode_id)
    for taken, decisions in rig.record:
        told.tell(taken, decisions)
    return told


def texts(rig: Rig, episode_id: str) -> list[str]:
    return [line.text for line in story(rig, episode_id).lines]


def two_members() -> Rig:
    rig = Rig(group_size=2, items_per_batch=1)
    rig.submit_group("g")
    return rig


def test_trained_with_advantage_and_tokens() -> None:
    rig = two_members()
    rig.feed(facts.Started("g.0"))
    rig.finish_group("g", 1.0, 0.0)
    report = facts.TrainedEpisode("g.0", True, "", 0.5, 12, 1.0, loss_weight=0.375, masked_tokens=3)
    rig.feed(facts.StepDone(1, (report,)))
    assert texts(rig, "g.0") == [
        "submitted: domain a, group g",
        "queued: until group g is complete and has its turn",
        "admitted: group g has position 0",
        "started",
        "finished: 1.50 s of agent time",
        "sealed: 5 sampled tokens of policy 0",
        "scored: performance 1, solved",
        "taken from position 0, 0 behind the head, into batch 1",
        "handed to the trainer in batch 1",
        "step 1 trained 12 tokens of it (3 masked: too old): reward 1, mean advantage +0.5, weight 0.375 of the step",
    ]
    assert story(rig, "g.0").verdict == "trained"


def test_each_line_names_its_source() -> None:
    rig = two_members()
    rig.finish("g.0")
    lines = story(rig, "g.0").lines
    assert [line.event_id for line in lines][:3] == ["test.stream/x@3", "", ""]


def test_in_flight_until_the_step_is_done() -> None:
    rig = two_members()
    rig.finish_group("g", 1.0, 0.0)
    assert story(rig, "g.0").verdict == "in_flight"


def test_member_that_is_not_eligible_is_dropped_though_its_group_is_trained() -> None:
    rig = Rig(group_size=3, items_per_batch=1)
    rig.submit_group("g")
    rig.fail("g.2")
    rig.finish("g.0", 1.0)
    rig.finish("g.1", 0.0)
    rig.step(1)
    assert texts(rig, "g.2")[-3:] == [
        "failed: infra",
        "taken from position 0, 0 behind the head, into batch 1; itself not eligible: infra",
        "handed to the trainer in batch 1",
    ]
    assert story(rig, "g.2").verdict == "dropped"
    assert texts(rig, "g.0")[-1] == "step 1 trained it; the step's report could not be read"


def test_dropped_with_the_reason() -> None:
    rig = two_members()
    rig.finish_group("g", 1.0, 1.0)
    assert texts(rig, "g.1")[-1] == "dropped with its group at position 0: no_spread"
    assert story(rig, "g.1").verdict == "dropped"


def test_what_comes_after_the_deadline_is_recorded() -> None:
    rig = two_members()
    rig.wait(60)
    rig.finish("g.0")
    assert texts(rig, "g.0")[3:6] == [
        "revoked: deadline",
        "dropped with its group at position 0: deadline",
        "finished: 1.50 s of agent time",
    ]
    assert story(rig, "g.0").verdict == "dropped"


def test_evaluation() -> None:
    rig = Rig()
    rig.feed(facts.Submitted("v", "", "a", pinned_step=0))
    assert story(rig, "v").verdict == "in_flight"
    rig.finish("v")
    assert texts(rig, "v")[:3] == [
        "submitted: domain a, evaluation of policy 0",
        "queued: evaluation, until policy 0 is the newest",
        "admitted: evaluation",
    ]
    assert story(rig, "v").verdict == "evaluated"


def test_refused_step() -> None:
    rig = two_members()
    rig.finish_group("g", 1.0, 0.0)
    rig.feed(facts.StepFailed(1, "mismatch 0.4"))
    assert texts(rig, "g.0")[-1] == "training of batch 1 was refused: mismatch 0.4"
    assert story(rig, "g.0").verdict == "dropped"


def test_turns_and_policies_of_a_partial_rollout() -> None:
    rig = two_members()
    rig.feed(facts.Sealed("g.0", b"", 40, 0, turn_count=3, branch_count=2, last_policy_step=2))
    assert texts(rig, "g.0")[-1] == "sealed: 3 turns in 2 branches, 40 sampled tokens of policies 0 to 2"
    rig.feed(facts.Finished("g.0", 1, 1.0))
    rig.feed(facts.Scored("g.0", 1.0, "solved", b""))
    rig.finish("g.1", 0.0)
    assert (rig.state.tally.taken_items, rig.state.tally.partial_episodes) == (1, 1)
    assert rig.state.tally.staleness_max == 0, "batch 1 is trained from policy 0, its oldest token's"


@pytest.mark.parametrize(
    "stage", ["running", "in a batch", "being trained", "trained", "dropped", "cancelled", "ended"]
)
def test_a_third_member_of_a_group_of_two_is_dropped_at_once_wherever_its_group_is(stage: str) -> None:
    rig = Rig(group_size=2, items_per_batch=2 if stage == "in a batch" else 1)
    rig.submit_group("g")
    if stage == "cancelled":
        rig.feed(facts.Cancelled("g.0"))
        rig.feed(facts.Cancelled("g.1"))
    elif stage != "running":
        rig.finish_group("g", 1.0, 1.0 if stage == "dropped" else 0.0)
    if stage == "trained":
        rig.step(1)
    if stage == "ended":
        rig.feed(facts.RunEnded("stopped"))
    before, groups = dict(rig.state.tally.dropped), dict(rig.state.tally.groups_by_domain)
    reason = "run_ended" if stage == "ended" else "group_closed"

    assert rig.submit("g.2", group="g") == [Revoke("g.2", reason)]

    assert rig.state.tally.dropped == {**before, reason: before.get(reason, 0) + 1}
    assert rig.state.tally.groups_by_domain == groups, "no second group of that name"
    assert rig.state.live("g.2") is None
    assert not any(m.episode_id == "g.2" for items in rig.state.batches.values() for i in items for m in i.members)
    assert balanced(rig.state)
    assert (texts(rig, "g.2")[-1], story(rig, "g.2").verdict) == (f"revoked: {reason}", "dropped")
    rig.finish("g.2")
    assert (story(rig, "g.2").verdict, balanced(rig.state)) == ("dropped", True), (
        "what comes of it later trains nothing"
    )
