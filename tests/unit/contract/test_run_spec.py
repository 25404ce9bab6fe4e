"""Defaults of a run file, and one line for each of its problems."""

from collections.abc import Callable

import pytest
from forgerl.common.v1 import run_pb2

from services.contract.run_spec import check, check_run_id, resolve

ENVIRONMENTS = ("reasoning", "tool", "qa")
AGENTS = ("tool_loop", "openai_script")


def minimal() -> run_pb2.RunSpec:
    spec = run_pb2.RunSpec()
    spec.model.path = "model"
    spec.domains.add(name="tool")
    spec.end.steps = 10
    return spec


def test_defaults_fill_what_is_missing():
    spec = resolve(minimal())
    assert (spec.domains[0].environment, spec.domains[0].agent, spec.domains[0].weight) == ("tool", "tool_loop", 1.0)
    assert (spec.sampling.temperature, spec.sampling.max_tokens) == (1.0, 160)
    assert (spec.scheduling.queue_items, spec.scheduling.window_items) == (32, 10)
    assert spec.training.loss == run_pb2.LOSS_KIND_CISPO
    assert spec.training.learning_rate == 3e-4
    assert spec.evaluation.at_start


def test_what_is_given_stays_also_when_it_is_zero():
    given = minimal()
    given.reward.alpha = 0.0
    given.evaluation.at_start = False
    spec = resolve(given)
    assert spec.reward.alpha == 0.0
    assert not spec.evaluation.at_start


@pytest.mark.parametrize(("queue", "window"), [(1, 1), (3, 1), (10, 3), (11, 4), (100, 30), (4096, 1229)])
def test_window_is_three_tenths_of_the_queue_rounded_up(queue: int, window: int):
    spec = minimal()
    spec.scheduling.queue_items = queue
    assert resolve(spec).scheduling.window_items == window


def test_resolving_twice_changes_nothing():
    assert resolve(resolve(minimal())) == resolve(minimal())


def test_a_minimal_run_has_no_problem():
    assert check(minimal(), ENVIRONMENTS, AGENTS) == []


def edit(path: str, value: object) -> Callable[[run_pb2.RunSpec], None]:
    def apply(spec: run_pb2.RunSpec) -> None:
        *rooms, last = path.split(".")
        target = spec
        for room in rooms:
            target = target.domains[0] if room == "domain" else getattr(target, room)
        setattr(target, last, value)

    return apply


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (edit("model.path", ""), "model.path: given nothing; allowed a Hugging Face model directory"),
        (edit("domain.environment", "x"), "domains[0].environment: given 'x'; allowed qa, reasoning, tool"),
        (edit("domain.agent", "x"), "domains[0].agent: given 'x'; allowed openai_script, tool_loop"),
        (edit("domain.weight", 0.0), "domains: given weights that sum to 0; allowed a sum above 0, finite"),
        (edit("domain.weight", float("inf")), "domains[0].weight: given inf; allowed at least 0, finite"),
        (edit("scheduling.fleet_weight", float("inf")), "scheduling.fleet_weight: given inf; allowed above 0, finite"),
        (edit("reward.beta", float("inf")), "reward.beta: given inf; allowed at least 0, finite"),
        (edit("domain.weight", -1.0), "domains[0].weight: given -1; allowed at least 0"),
        (edit("sampling.temperature", 0.0), "sampling.temperature: given 0; allowed above 0..2"),
        (edit("scheduling.window_items", 33), "scheduling.window_items: given 33; allowed 1..32"),
        (edit("scheduling.window_items", 0), "scheduling.window_items: given 0; allowed 1..32"),
        (edit("scheduling.queue_items", 0), "scheduling.queue_items: given 0; allowed 1..65536"),
        (edit("scheduling.in_flight_items", 0), "scheduling.in_flight_items: given 0; allowed 1..32"),
        (
            edit("scheduling.deadline_s", 60.0),
            "scheduling.deadline_s: given 60; allowed above the longest agent_timeout_s (60), 1e+08 at most",
        ),
        (
            edit("scheduling.deadline_s", 1e300),
            "scheduling.deadline_s: given 1e+300; allowed above the longest agent_timeout_s (60), 1e+08 at most",
        ),
        (edit("end.time_s", float("inf")), "end.time_s: given inf; allowed above 0..1e+08"),
        (edit("end.time_s", 1e9), "end.time_s: given 1e+09; allowed above 0..1e+08"),
        (edit("domain.agent_timeout_s", 1e9), "domains[0].agent_timeout_s: given 1e+09; allowed above 0..1e+08"),
        (edit("sampling.temperature", 2.1), "sampling.temperature: given 2.1; allowed above 0..2"),
        (edit("scheduling.group_size", 4097), "scheduling.group_size: given 4097; allowed 2..4096"),
        (edit("scheduling.queue_items", 65537), "scheduling.queue_items: given 65537; allowed 1..65536"),
        (edit("evaluation.tasks_per_domain", 65537), "evaluation.tasks_per_domain: given 65537; allowed 0..65536"),
        (edit("end.steps", 0), "end.steps: given 0; allowed at least 1"),
        (edit("training.cispo_cap", 0.0), "training.cispo_cap: given 0; allowed above 0"),
        (
            edit("training.truncated_importance_cap", 2.0),
            "training.truncated_importance_cap: given 2; allowed 0 with cispo, whose cispo_cap bounds the same ratio"
            " already",
        ),
        (edit("training.clip_low", 0.2), "training.clip_low: given 0.2; allowed above 0, with grpo, gspo or ppo_clip"),
        (edit("training.clip_high", 0.0), "training.clip_high: given 0; allowed above 0, with grpo, gspo or ppo_clip"),
        (edit("training.mismatch_kl_alarm", -0.1), "training.mismatch_kl_alarm: given -0.1; allowed at least 0"),
        (edit("seed", 2**63), "seed: given 9223372036854775808; allowed 0..9223372036854775807"),
        (edit("training.lora_rank", 1025), "training.lora_rank: given 1025; allowed 0..1024"),
        (edit("training.lora_alpha", 8.0), "training.lora_alpha: given 8; allowed above 0, with lora_rank"),
        (
            edit("training.mtp_learning_rate", 0.1),
            "training.mtp_learning_rate: given 0.1; allowed above 0..1, with mtp_top_k",
        ),
    ],
)
def test_every_problem_is_one_line(change: Callable[[run_pb2.RunSpec], None], line: str):
    spec = minimal()
    change(spec)
    assert line in check(spec, ENVIRONMENTS, AGENTS)


def test_weights_whose_sum_is_no_number_are_refused() -> None:
    spec = minimal()
    spec.domains.add(name="qa", weight=1.7e308)
    spec.domains[0].weight = 1.7e308
    assert check(spec, ENVIRONMENTS, AGENTS) == [
        "domains: given weights that sum to inf; allowed a sum above 0, finite"
    ]
    spec.domains[0].weight = 0.0
    assert check(spec, ENVIRONMENTS, AGENTS) == []


@pytest.mark.parametrize(
    ("mode", "lookahead", "smallest"),
    [("ROLLING", 3, 3), ("ROLLING", 0, 1), ("COHORT", None, 3)],  # a cohort of 32 items is four batches of eight
)
def test_a_bound_on_tokens_that_whole_batches_would_not_keep_is_refused(
    mode: str, lookahead: int | None, smallest: int
) -> None:
    spec = minimal()
    spec.scheduling.mode = run_pb2.SchedulingMode.Value(f"SCHEDULING_MODE_{mode}")
    if lookahead is not None:
        spec.scheduling.lookahead_steps = lookahead
    for bound in range(1, smallest):
        spec.training.max_token_staleness_steps = bound
        assert check(spec, ENVIRONMENTS, AGENTS) == [
            f"training.max_token_staleness_steps: given {bound}; allowed 0, or at least scheduling.lookahead_steps"
            " (3): whole batches may be that old"
        ]
    for bound in (0, smallest, smallest + 1):
        spec.training.max_token_staleness_steps = bound
        assert check(spec, ENVIRONMENTS, AGENTS) == []


def test_not_a_number_is_refused():
    spec = minimal()
    spec.sampling.temperature = float("nan")
    assert check(spec, ENVIRONMENTS, AGENTS) == ["sampling.temperature: given nan; allowed above 0..2"]


def test_weights_that_could_put_wrong_above_right_are_refused():
    spec = minimal()
    spec.reward.gamma = 0.5
    spec.domains[0].max_turns = 4
    spec.reward.alpha = 0.125
    assert check(spec, ENVIRONMENTS, AGENTS) == [
        "reward.alpha: given 0.125; allowed below gamma^(max_turns-1) = 0.125,"
        " or a right episode could earn less than a wrong one"
    ]
    spec.reward.alpha = 0.1249
    assert check(spec, ENVIRONMENTS, AGENTS) == []


def test_all_problems_are_told_at_once():
    lines = check(run_pb2.RunSpec(), ENVIRONMENTS, AGENTS)
    assert [line.split(":")[0] for line in lines] == ["model.path", "domains", "end"]


@pytest.mark.parametrize(
    ("run_id", "good"), [("run-1", True), ("", False), ("A", False), ("a" * 41, False), ("a/b", False)]
)
def test_run_ids(run_id: str, good: bool):
    assert (check_run_id(run_id) == []) is good


@pytest.mark.parametrize(
    ("loss", "low", "high"),
    [
        (run_pb2.LOSS_KIND_GRPO, 0.2, 0.2),
        (run_pb2.LOSS_KIND_PPO_CLIP, 0.2, 0.2),
        (run_pb2.LOSS_KIND_GSPO, 3e-4, 4e-4),
    ],
)
def test_clipped_losses_have_an_interval_and_no_cap_of_cispos(loss: run_pb2.LossKind, low: float, high: float):
    spec = minimal()
    spec.training.loss = loss
    spec.training.truncated_importance_cap = 2.0
    training = resolve(spec).training
    assert (training.clip_low, training.clip_high) == (low, high)
    assert not training.HasField("cispo_cap")
    assert check(spec, ENVIRONMENTS, AGENTS) == []
    spec.training.clip_high = 0.0
    spec.training.cispo_cap = 5.0
    spec.training.truncated_importance_cap = -1.0
    assert check(spec, ENVIRONMENTS, AGENTS) == [
        "training.cispo_cap: given 5; allowed above 0, with cispo",
        "training.clip_high: given 0; allowed above 0",
        "training.truncated_importance_cap: given -1; allowed at least 0",
    ]


def test_adapters_and_draft_head_settle_their_numbers_only_when_they_are_on():
    spec = minimal()
    off = resolve(spec).training
    assert (off.lora_rank, off.HasField("lora_alpha")) == (0, False)
    assert (off.mtp_top_k, off.HasField("mtp_learning_rate")) == (0, False)
    assert (off.merge_prefixes, off.activation_checkpointing) == (True, False)
    spec.training.lora_rank = 4
    spec.training.mtp_top_k = 16
    on = resolve(spec).training
    assert (on.lora_alpha, on.mtp_learning_rate) == (8.0, 1e-3)
    assert check(spec, ENVIRONMENTS, AGENTS) == []
    spec.training.lora_alpha = 0.0
    assert check(spec, ENVIRONMENTS, AGENTS) == ["training.lora_alpha: given 0; allowed above 0"]


def test_every_section_resolves_to_itself():
    for loss in (run_pb2.LOSS_KIND_CISPO, run_pb2.LOSS_KIND_GSPO):
        spec = minimal()
        spec.training.loss = loss
        assert resolve(resolve(spec)) == resolve(spec)
