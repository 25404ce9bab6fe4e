"""When a run has reached its end, and what an episode's view shows."""

from datetime import UTC, datetime, timedelta

from forgerl.common.v1 import run_pb2, score_pb2, task_pb2
from forgerl.events.v1 import gateway_pb2
from forgerl.gateway.v1 import episode_service_pb2 as episode_api
from forgerl.gateway.v1 import record_pb2

from services.gateway.domain.assembly import Assembly
from services.gateway.domain.episodes import Episode
from services.gateway.domain.runs import Run

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def run(**end: float) -> Run:
    fresh = Run()
    spec = run_pb2.RunSpec(end=run_pb2.EndSpec(**end))  # type: ignore[arg-type]
    fresh.apply(gateway_pb2.RunCreated(run_id="r", spec=spec), NOON)
    return fresh


def step(number: int, reward: float = 0.0) -> record_pb2.RunObserved:
    return record_pb2.RunObserved(step=record_pb2.StepObserved(step=number, metrics={"reward_mean": reward}))


def test_target_needs_ten_steps_of_which_the_mean_counts():
    trained = run(target_reward=0.5)
    for number in range(1, 10):
        trained.apply(step(number, 1.0), NOON)
        assert trained.reached(NOON) == ""
    # Mean of nine ones and a -4 is 0.5.
    trained.apply(step(10, -4.0), NOON)
    assert trained.reached(NOON) == "target"
    trained.apply(step(11, 0.9), NOON)
    # The first 1.0 leaves, 0.9 comes: 0.49.
    assert trained.reached(NOON) == ""


def test_time_counts_from_the_last_beginning():
    timed = run(time_s=60)
    assert timed.deadline() == NOON + timedelta(seconds=60)
    assert timed.reached(NOON + timedelta(seconds=59)) == ""
    assert timed.reached(NOON + timedelta(seconds=60)) == "time"
    timed.apply(gateway_pb2.RunEnded(run_id="r", reason="time"), NOON + timedelta(seconds=60))
    assert timed.reached(NOON + timedelta(days=1)) == ""
    later = NOON + timedelta(hours=1)
    timed.apply(gateway_pb2.RunResumed(run_id="r", end=run_pb2.EndSpec(time_s=30)), later)
    assert timed.deadline() == later + timedelta(seconds=30)


def test_batches_count_when_their_step_is_done_whichever_comes_first():
    counted = run(episodes=10)
    counted.apply(record_pb2.RunObserved(batch=record_pb2.BatchObserved(batch=1, episodes=6)), NOON)
    assert counted.episodes_consumed == 0
    counted.apply(step(1), NOON)
    counted.apply(step(2), NOON)
    counted.apply(record_pb2.RunObserved(batch=record_pb2.BatchObserved(batch=2, episodes=3)), NOON)
    assert counted.episodes_consumed == 9
    counted.apply(record_pb2.RunObserved(episodes_dropped=1), NOON)
    assert counted.reached(NOON) == "episodes"


def test_newest_policy_is_shown():
    shown = run(steps=9)
    for number in (0, 2, 1):
        policy = record_pb2.PolicyObserved(step=number, digest=f"d{number}")
        shown.apply(record_pb2.RunObserved(policy=policy), NOON)
    assert shown.policy is not None and shown.policy.digest == "d2"


def test_late_events_do_not_bring_an_ended_episode_back():
    episode = Episode()
    seen = record_pb2.EpisodeObserved
    episode.apply(gateway_pb2.EpisodeSubmitted(episode_id="e", run_id="r"), NOON)
    episode.apply(seen(revoked_reason="deadline"), NOON)
    episode.apply(gateway_pb2.TrajectorySealed(episode_id="e"), NOON)
    assert episode.over
    late = record_pb2.OutcomeObserved(outcome=task_pb2.OUTCOME_COMPLETED, answer="42")
    episode.apply(seen(finished=late), NOON)
    episode.apply(seen(admitted=record_pb2.AdmissionObserved()), NOON)
    assert (episode.state, episode.detail) == (episode_api.EPISODE_STATE_CANCELLED, "deadline")


def test_a_failed_grading_is_no_score_and_may_be_scored_later():
    episode = Episode()
    seen = record_pb2.EpisodeObserved
    episode.apply(gateway_pb2.EpisodeSubmitted(episode_id="e", run_id="r"), NOON)
    episode.apply(gateway_pb2.TrajectorySealed(episode_id="e"), NOON)
    episode.apply(seen(scoring_failed="boom"), NOON)
    assert (episode.state, episode.score) == (episode_api.EPISODE_STATE_FAILED, None)
    episode.apply(seen(scored=score_pb2.Score(performance=0.5)), NOON)
    assert episode.state == episode_api.EPISODE_STATE_SCORED


def test_deltas_without_ids_get_them_once():
    assembly = Assembly("call_x")
    first = assembly.add_tool_calls('[{"index": 0, "function": {"name": "f", "arguments": "{"}}]')
    second = assembly.add_tool_calls('[{"index": 0, "id": "late", "function": {"arguments": "}"}}]')
    third = assembly.add_tool_calls('[{"index": 1, "id": "own", "function": {"name": "g", "arguments": ""}}]')
    assert '"id": "call_x-0"' in first and '"type": "function"' in first
    assert "id" not in second.replace('"index"', "")
    assert '"id": "own"' in third
    assert [(c.call_id, c.name, c.arguments) for c in assembly.message().tool_calls] == [
        ("call_x-0", "f", "{}"),
        ("own", "g", ""),
    ]
