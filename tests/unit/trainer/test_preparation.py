"""A batch made ready: weights by normalisation, tokens that are too old, domains side by side, by hand."""

from dataclasses import replace

import numpy as np
import pytest
from forgerl.common.v1 import run_pb2

from services.contract.run_spec import resolve
from services.contract.trajectory import Node, Span, Trajectory
from services.trainer.domain.episodes import EpisodeInput
from services.trainer.domain.guard import BatchStats, DomainStats, mismatch_alarm
from services.trainer.domain.histograms import Histogram
from services.trainer.domain.losses import Cispo, Grpo, Gspo, Loss, PpoClip, TruncatedImportance, loss_of
from services.trainer.domain.metrics import all_metrics
from services.trainer.domain.preparation import prepare
from services.trainer.domain.refusal import StepRefused


def spec(**training: object) -> run_pb2.RunSpec:
    """Performance only; one domain is enough, since the batch says which an episode is of."""
    given = run_pb2.RunSpec()
    given.reward.alpha = given.reward.beta = 0.0
    for name, value in training.items():
        setattr(given.training, name, value)
    return resolve(given)


def episode(name: str, performance: float, spans: list[tuple[int, int]], domain: str = "tool") -> EpisodeInput:
    """A prompt of one token and a turn; `spans`: (tokens, policy step) one after the other."""
    ends = np.cumsum([tokens for tokens, _ in spans]).tolist()
    versions = tuple(Span(end - tokens, end, step, f"d{step}") for end, (tokens, step) in zip(ends, spans, strict=True))
    ids = tuple(range(2, 2 + ends[-1]))
    turn = Node(1, 0, "sampled", 0, "assistant", "{}", ids, (-1.0,) * len(ids), versions, 1.0, 1.0, "stop")
    trajectory = Trajectory(name, "run", (Node(0, -1, "context", -1, "user", "{}", (1,)), turn))
    solved = performance >= 0.5
    return EpisodeInput(name, domain, trajectory, performance, (), solved, 1.0, spans[0][1], True, "")


# Two groups: 3 + 1 tokens, and 2 + 2 tokens.
GROUPS = [
    [episode("a", 1.0, [(3, 5)]), episode("b", 0.0, [(1, 5)])],
    [episode("c", 1.0, [(2, 5)]), episode("d", 0.0, [(2, 5)])],
]


def weights_of(groups: list[list[EpisodeInput]], given: run_pb2.RunSpec) -> dict[str, list[float]]:
    prepared = prepare(groups, given, 5)
    return {row.episode_id: row.weights_T[row.trained_T].tolist() for row in prepared.rows.rows}


def test_global_normalisation_gives_every_token_of_the_step_one_weight():
    assert weights_of(GROUPS, spec()) == {"a": [1 / 8] * 3, "b": [1 / 8], "c": [1 / 8] * 2, "d": [1 / 8] * 2}
    uneven = [GROUPS[0], [episode("c", 1.0, [(4, 5)]), episode("d", 0.0, [(2, 5)])]]
    assert weights_of(uneven, spec()) == {"a": [0.1] * 3, "b": [0.1], "c": [0.1] * 4, "d": [0.1] * 2}


def test_by_prompt_group_each_group_has_one_vote():
    by_group = spec(normalisation=run_pb2.LOSS_NORMALISATION_PROMPT_GROUP)
    uneven = [GROUPS[0], [episode("c", 1.0, [(4, 5)]), episode("d", 0.0, [(2, 5)])]]
    # 1/(2 groups * 4 tokens), 1/(2 groups * 6 tokens)
    assert weights_of(uneven, by_group) == {"a": [1 / 8] * 3, "b": [1 / 8], "c": [1 / 12] * 4, "d": [1 / 12] * 2}
    prepared = prepare(uneven, by_group, 5)
    assert prepared.loss_weights == pytest.approx({"a": 3 / 8, "b": 1 / 8, "c": 1 / 3, "d": 1 / 6})


def test_context_has_no_weight_and_the_step_sums_to_one():
    prepared = prepare(GROUPS, spec(), 5)
    assert all((row.weights_T[~row.trained_T] == 0).all() for row in prepared.rows.rows)
    assert sum(prepared.loss_weights.values()) == pytest.approx(1.0)


def test_tokens_that_are_too_old_become_context_and_are_counted():
    # sampled at steps 2, 3 and 5, trained at 5: ages 3, 2 and 0
    mixed = episode("a", 1.0, [(2, 2), (1, 3), (3, 5)])
    group = [mixed, episode("b", 0.0, [(2, 4)]), episode("c", 0.0, [(4, 1)])]
    prepared = prepare([group], spec(max_token_staleness_steps=2), 5)
    rows = {row.episode_id: row for row in prepared.rows.rows}
    assert rows["a"].trained_T.tolist() == [False, False, False, True, True, True, True]
    assert rows["a"].token_ids_T.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert set(rows) == {"a", "b"}
    assert prepared.rows.masked_tokens == {"a": 2, "c": 4}
    assert [prepared.masked_tokens(name) for name in "abc"] == [2, 0, 4]
    # weights are those of the six tokens that are left; the baseline still counts every member
    assert prepared.loss_weights == pytest.approx({"a": 4 / 6, "b": 2 / 6})
    told = [(p.episode.episode_id, p.trained, p.why_not, p.trained_tokens) for p in prepared.plans]
    assert told == [("a", True, "", 4), ("b", True, "", 2), ("c", False, "tokens_too_old", 0)]
    assert prepared.plans[1].mean_advantage == pytest.approx(-0.5)


def test_without_a_bound_no_token_is_too_old():
    prepared = prepare([[episode("a", 1.0, [(2, 0)]), episode("b", 0.0, [(2, 0)])]], spec(), 1000)
    assert (len(prepared.rows.rows), prepared.rows.masked_tokens) == (2, {})


def test_a_batch_whose_every_token_is_too_old_is_refused_with_the_reason():
    group = [episode("a", 1.0, [(2, 0)]), episode("b", 0.0, [(2, 0)])]
    with pytest.raises(StepRefused, match="more than 1 steps old"):
        prepare([group], spec(max_token_staleness_steps=1), 2)


def test_an_engine_logprob_that_is_not_finite_names_turn_and_token():
    bad = GROUPS[0][0]
    context, turn = bad.trajectory.nodes
    broken = replace(turn, logprobs=(-1.0, float("nan"), -1.0))
    group = [replace(bad, trajectory=replace(bad.trajectory, nodes=(context, broken))), GROUPS[0][1]]
    with pytest.raises(StepRefused, match="episode a: turn 0: token 2 of its branch: the engine's log-probability"):
        prepare([group], spec(), 5)


@pytest.mark.parametrize(("kind", "scale"), [("GRPO", 0.7071 + 1e-4), ("GSPO", 0.7071 + 1e-4), ("PPO_CLIP", 1.0)])
def test_grpo_and_gspo_divide_by_the_groups_standard_deviation(kind: str, scale: float):
    # rewards 1 and 0: standard deviation 1/sqrt(2)
    prepared = prepare(GROUPS[:1], spec(loss=getattr(run_pb2, f"LOSS_KIND_{kind}")), 5)
    assert [p.mean_advantage for p in prepared.plans] == pytest.approx([1 / scale, -1 / scale], rel=1e-4)


@pytest.mark.parametrize(
    ("given", "wanted", "interval"),
    [
        ({}, Cispo, "[0, 5]"),
        ({"loss": run_pb2.LOSS_KIND_CISPO, "cispo_cap": 2.0}, Cispo, "[0, 2]"),
        ({"loss": run_pb2.LOSS_KIND_GRPO, "clip_high": 0.28}, Grpo, "[0.8, 1.28]"),
        ({"loss": run_pb2.LOSS_KIND_GSPO}, Gspo, "[0.9997, 1.0004]"),
        ({"loss": run_pb2.LOSS_KIND_PPO_CLIP, "clip_low": 0.1}, PpoClip, "[0.9, 1.2]"),
        ({"loss": run_pb2.LOSS_KIND_GRPO, "truncated_importance_cap": 2.0}, TruncatedImportance, "cut to 2"),
    ],
)
def test_the_run_file_says_which_loss(given: dict[str, object], wanted: type[Loss], interval: str):
    loss = loss_of(spec(**given).training)
    assert isinstance(loss, wanted)
    assert interval in loss.describe()


def test_a_loss_from_the_future_is_refused():
    with pytest.raises(StepRefused, match=r"training\.loss: given 0"):
        loss_of(run_pb2.TrainingSpec())


def test_domains_stand_side_by_side_under_stable_names():
    groups = [
        [episode(f"{name}{i}", float(i), [(2 + i, 5)], domain=name) for i in (0, 1)]
        for name in ("reasoning", "qa", "tool")
    ]
    prepared = prepare(groups, spec(), 5)
    # no domain is treated apart: every token of the three has the same weight
    assert {w for row in prepared.rows.rows for w in row.weights_T[row.trained_T].tolist()} == {1 / 15}
    assert [row.domain for row in prepared.rows.rows] == ["reasoning"] * 2 + ["qa"] * 2 + ["tool"] * 2
    stats = BatchStats(15, 15, 0.1, 1.0, 1.0, 2.0, 0.2, 0.3, 0.4, 0.4, 0.5, 1.0)
    domains = {"qa": DomainStats(5, 0.25, 2.0, 1.1, 1.9, 0.4, 0.01, 0.1), "tool": DomainStats(5, -0.5)}
    histograms = {"ratio": Histogram.of((0.5, 1.0), np.array([0.75, 1.25, 1.5]))}
    metrics = all_metrics(replace(stats, domains=domains, histograms=histograms), prepared, 3.0, 5)
    wanted = {
        "reward_mean": 0.5,
        "success": 0.5,
        "episodes": 2.0,
        "tokens": 5.0,
        "loss": 0.25,
        "entropy": 2.0,
        "ratio_mean": 1.1,
        "ratio_max": 1.9,
        "clip_share": 0.4,
        "mismatch_kl": 0.01,
    }
    assert {name: value for name, value in metrics.items() if name.startswith("domain/qa/")} == {
        f"domain/qa/{name}": value for name, value in wanted.items()
    }
    assert (metrics["domain/tool/loss"], metrics["domain/reasoning/tokens"]) == (-0.5, 0.0)
    assert (metrics["grad_norm"], metrics["masked_tokens"]) == (3.0, 0.0)
    assert [metrics[f"ratio_p{p}"] for p in ("01", "50", "95", "99")] == sorted(
        metrics[f"ratio_p{p}"] for p in ("01", "50", "95", "99")
    )
    assert 0.75 <= metrics["ratio_p01"] <= metrics["ratio_p99"] <= 1.5


STATS = BatchStats(100, 10, 0.1, 1.0, 1.0, 1.5, 0.0, 0.02, 0.2, 0.05, 0.3, 1.0, fresh_kl=0.004)


@pytest.mark.parametrize(
    ("alarm", "said"),
    [
        (0.0, ""),
        (0.01, ""),
        (0.003, "mismatch KL is 0.004 over 10 tokens of the same weights; alarm 0.003"),
    ],
)
def test_mismatch_kl_of_fresh_tokens_raises_the_alarm(alarm: float, said: str):
    assert mismatch_alarm(STATS, alarm) == said


def test_mismatch_kl_of_older_tokens_raises_it_at_ten_times_as_much():
    stale = replace(STATS, fresh_tokens=0, fresh_kl=0.0)
    assert mismatch_alarm(stale, 0.003) == ""
    assert mismatch_alarm(stale, 0.0019) == "mismatch KL is 0.02 over 100 tokens, older ones included; alarm 0.019"
