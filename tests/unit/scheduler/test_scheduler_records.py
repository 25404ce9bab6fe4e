"""A queue's entries survive their packing exactly, and a batch's manifest says what its items hold."""

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest
from forgerl.common.v1 import blob_pb2, score_pb2, task_pb2
from forgerl.scheduler.v1 import queue_pb2
from scheduler_rig import CONFIG

from services.kernel.errors import Permanent
from services.scheduler.adapters.manifests import build_manifest
from services.scheduler.adapters.records import from_record, to_record
from services.scheduler.domain import decisions, facts
from services.scheduler.domain.members import Item, Member
from services.scheduler.domain.queue import disagreement, fold
from services.scheduler.domain.state import State
from services.scheduler.ports import Entry

FACTS: list[facts.Fact] = [
    facts.RunOpened(CONFIG),
    facts.RunOpened(
        replace(CONFIG, selection="version_window", mode="cohort", version_window_steps=2, fleet_weight=0.5)
    ),
    facts.RunOpened(replace(CONFIG, window_auto=True, drift_bound=0.1, owed_items=8)),
    facts.RunEnded("steps"),
    facts.RunReopened(9),
    facts.RunRemoved(),
    facts.Submitted("e", "g", "a", None, "corr", "00-1-2-01"),
    facts.Submitted("e", "", "a", 0),
    facts.Cancelled("e", "why"),
    facts.Sealed("e", b"\x00\x01", 7, 2),
    facts.Started("e"),
    facts.Finished("e", 1, 0.1),
    facts.Failed("e", 4, False, "lost"),
    facts.Scored("e", 1 / 3, "wrong", b"score"),
    facts.ScoringFailed("e", "raised"),
    facts.StepDone(3, (facts.TrainedEpisode("e", True, "", -0.25, 12, 1.5),)),
    facts.StepDone(4, ()),
    facts.StepFailed(5, "nan"),
    facts.PolicyPublished(0),
    facts.FleetShared(12),
    facts.TrajectoriesPruned(("e", "f"), 4, 4096),
    facts.PruningRequested(4),
    facts.Ticked(),
]
DECISIONS: list[decisions.Decision] = [
    decisions.AdmitItem("g", 0, 1060.5),
    decisions.AdmitEvaluation("e", 1060.5),
    decisions.Revoke("e", "deadline"),
    decisions.TakeItem("g", 4, 2, 1),
    decisions.DropItem("g", 0, "no_spread"),
    decisions.DropItem("g", None, "cancelled"),
    decisions.CloseBatch(2),
    decisions.SetWindow(7),
    decisions.PruneEpisodes(("e", "f"), 4),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_every_fact_comes_back_as_it_was(fact: facts.Fact) -> None:
    entry = Entry(facts.Input(1000.123456789, fact, "s/x@3", 999.9), tuple(DECISIONS), "replica-1")
    packed = queue_pb2.QueueAdvanced.FromString(to_record(entry).SerializeToString())
    assert from_record(packed) == entry


def test_every_kind_of_fact_is_tried_above() -> None:
    assert {type(fact) for fact in FACTS} == set(facts.Fact.__args__)
    assert {type(decision) for decision in DECISIONS} == set(decisions.Decision.__args__)


def test_a_queue_recorded_before_modes_and_shares_folds_to_what_it_was() -> None:
    """Bytes written by the first version, kept as they are: 66 inputs, every kind of decision that there then was."""
    kept = json.loads(Path(__file__).with_name("golden_queue.json").read_text())
    packed = [queue_pb2.QueueAdvanced.FromString(base64.b64decode(record)) for record in kept["records"]]
    entries = [from_record(record) for record in packed]
    assert [to_record(entry) for entry in entries if not isinstance(entry.taken.fact, facts.RunOpened)] == packed[1:]
    state = State()
    for entry in entries:
        assert list(fold(state, entry.taken, entry.decisions)) == list(entry.decisions)
    tally, stalls = state.tally, state.stalls
    assert {
        **{name: getattr(state, name) for name in ("head", "tail", "handed", "completed", "in_flight")},
        **{name: getattr(tally, name) for name in ("submitted", "trained", "dropped", "evaluations", "distance_max")},
        **{"stalled_s": stalls.stalled_s, "observed_s": stalls.observed_s},
    } == kept["state"]
    assert disagreement([(entry.taken, entry.decisions) for entry in entries]) == "", "today's rules decide the same"


def test_a_record_without_a_fact_is_refused() -> None:
    with pytest.raises(Permanent, match="holds no fact"):
        from_record(queue_pb2.QueueAdvanced(event_id="s/x@1"))


def test_manifest_holds_every_member_eligible_or_not() -> None:
    trained = Member(facts.Submitted("e0", "g", "a", traceparent="00-aa-bb-01"), "")
    ref = blob_pb2.BlobRef(uri="file:///t", sha256="ab", size_bytes=3, media_type="arrow")
    score = score_pb2.Score(performance=0.5, failure_class="agent_timeout")
    trained.sealed = facts.Sealed("e0", ref.SerializeToString(), 9, 4)
    trained.finished = facts.Finished("e0", task_pb2.OUTCOME_AGENT_TIMEOUT, 2.5)
    trained.scored = facts.Scored("e0", 0.5, "agent_timeout", score.SerializeToString())
    lost = Member(facts.Submitted("e1", "g", "a"), "", ended_by="infra")
    late = Member(facts.Submitted("e2", "g", "a"), "", ended_by="deadline")
    manifest = build_manifest("run", 7, [Item("g", "a", 3, members=[trained, lost, late], position=12)])
    (item,) = manifest.items
    assert (manifest.run_id, manifest.batch, item.group_id, item.domain, item.position) == ("run", 7, "g", "a", 12)
    first, second, third = item.episodes
    assert (first.eligible, first.trajectory, first.score, first.agent_wall_s) == (True, ref, score, 2.5)
    assert (first.outcome, first.first_policy_step, first.traceparent) == (
        task_pb2.OUTCOME_AGENT_TIMEOUT,
        4,
        "00-aa-bb-01",
    )
    assert (second.eligible, second.why_not, second.outcome) == (False, "infra", task_pb2.OUTCOME_INFRA)
    assert (third.eligible, third.why_not, third.outcome) == (False, "deadline", task_pb2.OUTCOME_CANCELLED)
    assert not second.HasField("trajectory")
