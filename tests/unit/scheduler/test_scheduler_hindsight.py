"""What would have happened: the same rules give the record back, other rules what is worked out by hand."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from scheduler_rig import CONFIG, Rig
from test_scheduler_pace import Domains, config

from services.scheduler.domain import facts
from services.scheduler.domain.contrast import Painter, changed, first_divergence
from services.scheduler.domain.decisions import AdmitItem, CloseBatch, Decision, Revoke, TakeItem
from services.scheduler.domain.hindsight import Hindsight
from services.scheduler.domain.outcome import Observer, Outcome, same_batch_share
from services.scheduler.domain.state import State
from services.scheduler.domain.what_if import Planned, what_if

START_US = 2_000_000_000
Record = list[tuple[facts.Input, list[Decision]]]


def made(batches: int, **changes: object) -> Record:
    """The record of an imagined run of two domains, with deadlines that strike now and then."""
    numbers = config((("fast", 2.0), ("slow", 1.0)), deadline_s=25.0, **changes)
    record: Record = []
    for entry in what_if(Domains(numbers, {"fast": 1.0, "slow": 6.0}, {"slow": 0.2}, seed=3), State()):
        record.append(entry)
        if any(isinstance(d, CloseBatch) and d.batch == batches for d in entry[1]):
            return record
    raise AssertionError("the run stopped early")


def queue_decisions(record: Iterable[tuple[facts.Input, Sequence[Decision]]]) -> list[tuple[float, Decision]]:
    """What was decided about the queue, and when."""
    kinds = (AdmitItem, TakeItem, CloseBatch)
    return [(taken.taken_at_s, d) for taken, decided in record for d in decided if isinstance(d, kinds)]


@pytest.mark.parametrize(
    "changes", [{}, {"selection": "greedy"}, {"mode": "cohort"}, {"window_items": 2, "lookahead_steps": 1}]
)
def test_under_its_own_rules_a_record_comes_back_bit_for_bit(changes: dict[str, object]) -> None:
    record = made(30, **changes)
    known = Hindsight(record)
    assert known.config is not None
    again = queue_decisions(what_if(known.platform(known.config), State()))
    wanted = queue_decisions(record)
    # Groups that the record's end cut off are left out: up to the first of them everything is equal, times included.
    both = list(zip(wanted, again, strict=False))
    cut = next((index for index, (one, other) in enumerate(both) if one != other), len(both))
    assert cut > 0.5 * len(wanted)
    first = wanted[cut][1]
    assert isinstance(first, AdmitItem)
    ended = {taken.fact.episode_id for taken, _ in record if isinstance(taken.fact, facts.Scored)}
    ended |= {d.episode_id for _, decided in record for d in decided if isinstance(d, Revoke)}
    assert not ended.issuperset({f"{first.group_id}.{index}" for index in range(2)})


class ByHand:
    """Eight items of one episode; all take a second but the first, which takes ten; a step takes half a second."""

    def __init__(self) -> None:
        self._done_us = 0

    def opening(self) -> Iterable[Planned]:
        numbers = replace(CONFIG, items_per_batch=2, queue_items=4, window_items=2, in_flight_items=4)
        groups = tuple(facts.Submitted(f"e{index}", "", "a") for index in range(8))
        yield START_US, (facts.RunOpened(numbers), facts.PolicyPublished(0), *groups)

    def follows(self, state: State, decision: Decision, now_us: int) -> Iterable[Planned]:
        match decision:
            case AdmitItem(group_id):
                ended = (
                    facts.Scored(group_id, 1.0, "solved", b""),
                    facts.Sealed(group_id, b"", 5, state.published),
                    facts.Finished(group_id, 1, 1.0),
                )
                yield now_us + (10_000_000 if group_id == "e0" else 1_000_000), ended
            case CloseBatch(batch):
                self._done_us = max(now_us, self._done_us) + 500_000
                yield self._done_us, (facts.StepDone(batch, ()), facts.PolicyPublished(batch))
            case _:
                pass


def outcome(record: Iterable[tuple[facts.Input, Sequence[Decision]]], batches: int) -> tuple[Observer, Outcome]:
    observer = Observer(batches)
    for taken, decisions in record:
        observer.watch(taken, decisions)
    return observer, observer.outcome()


def test_greedy_instead_of_a_window_of_two_worked_by_hand() -> None:
    record = list(what_if(ByHand(), State()))
    ours, was = outcome(record, 4)
    # W = 2: e1 is taken at 1 s, e2 and e3 wait until e0 is there at 10 s. Batches at 10 {e1 e0}, 10 {e2 e3}, then
    # e4 to e7 of which e4 entered at 1 s; e5, e6, e7 enter at 10 s: {e4 e5}, {e6 e7} at 11 s; steps end at 12 s.
    assert [item.position for item in ours.order] == [1, 0, 2, 3, 4, 5, 6, 7]
    assert (was.batches, was.items_taken, was.distance_max) == (4, 8, 1)
    assert was.span_s == pytest.approx(12.0)
    assert was.stall_share > 0.5
    known = Hindsight(record)
    assert known.config is not None
    platform = known.platform(replace(known.config, selection="greedy"))
    theirs, would = outcome(what_if(platform, State()), 4)
    assert [item.position for item in theirs.order] == [1, 2, 3, 4, 5, 6, 7, 0]
    # {e1 e2} at 1 s, {e3 e4}, {e5 e6} at 2 s, {e7 e0} at 10 s: the last step ends at 10.5 s.
    assert (would.span_s, would.distance_max, would.stall_share) == (pytest.approx(10.5), 7, 0.0)
    assert would.items_per_s == pytest.approx(8 / 10.5)
    # Batches were {1 0} {2 3} {4 5} {6 7}, and would be {1 2} {3 4} {5 6} {7 0}: e1, e3, e5 and e7 keep theirs.
    assert same_batch_share(ours.order, theirs.order) == pytest.approx(4 / 8)


def test_groups_whose_end_is_unknown_are_left_out_and_deadlines_strike_again() -> None:
    rig = Rig(group_size=2, items_per_batch=1, in_flight_items=3)
    for group in ("g0", "g1", "g2", "g3"):
        rig.submit_group(group)
    rig.now_s += 2
    rig.finish_group("g0")
    rig.finish("g1.0")
    rig.wait(59)  # g1.1 and both of g2 miss their deadline
    rig.feed(facts.RunEnded("stopped"))
    known = Hindsight(rig.record)
    assert known.config is not None
    platform = known.platform(known.config)
    assert (known.groups, platform.used_groups) == (4, 3), "g3 was cut off"
    again = list(what_if(platform, State()))
    observer, found = outcome(again, 2)
    assert (found.batches, found.items_taken) == (1, 1)
    assert observer.state.tally.dropped == {"deadline": 3, "too_few_eligible": 1}
    assert observer.state.handed == 1


def test_a_record_without_its_opening_is_refused() -> None:
    with pytest.raises(ValueError, match="without the run's opening"):
        Hindsight([])


def test_two_runs_part_where_the_first_decision_differs() -> None:
    portraits = []
    for window, run_id in ((1, "one"), (3, "two")):
        rig = Rig(window_items=window, group_size=2, items_per_batch=1)
        for index in range(3):
            rig.submit_group(f"{run_id}/a/{index}")
        rig.finish_group(f"{run_id}/a/1", 1.0, 0.5)
        rig.finish_group(f"{run_id}/a/0", 1.0, 0.0)
        report = facts.TrainedEpisode(f"{run_id}/a/0.0", True, "", 0.5, 12, 1.25)
        rig.feed(facts.StepDone(1, (report,)))
        painter = Painter(run_id)
        for taken, decisions in rig.record:
            painter.see(taken, decisions)
        portraits.append(painter.portrait)
    ours, theirs = portraits
    assert changed(ours.settings, theirs.settings) == {"window_items": (1, 3)}
    assert first_divergence(ours.decided, theirs.decided) == (
        3,
        "a/0 goes from position 0, 0 behind the head, into batch 1",
        "a/1 goes from position 1, 1 behind the head, into batch 1",
    )
    assert first_divergence(ours.decided, ours.decided) is None
    (point,) = ours.curve
    assert (point.step, point.reward_mean, point.performance_mean, point.trained_tokens) == (1, 1.25, 0.5, 12)
    assert theirs.curve[0].performance_mean == 0.75
    assert (ours.totals()["submitted"], ours.totals()["batches"]) == (6, 2)
