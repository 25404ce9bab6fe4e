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
        (edit("domain.weight", 0.0), "domains: given weights that sum to 0; allowed a sum above 0"),
        (edit("domain.weight", -1.0), "domains[0].weight: given -1; allowed at least 0"),
        (edit("sampling.temperature", 0.0), "sampling.temperature: given 0; allowed above 0..10"),
        (edit("scheduling.window_items", 33), "scheduling.window_items: given 33; allowed 1..32"),
        (edit("scheduling.window_items", 0), "scheduling.window_items: given 0; allowed 1..32"),
        (edit("scheduling.queue_items", 0), "scheduling.queue_items: given 0; allowed at least 1"),
        (edit("scheduling.in_flight_items", 0), "scheduling.in_flight_items: given 0; allowed 1..32"),
        (
            edit("scheduling.deadline_s", 60.0),
            "scheduling.deadline_s: given 60; allowed above the longest agent_timeout_s (60)",
        ),
        (edit("end.steps", 0), "end.steps: given 0; allowed at least 1"),
        (edit("training.cispo_cap", 0.0), "training.cispo_cap: given 0; allowed above 0"),
    ],
)
def test_every_problem_is_one_line(change: Callable[[run_pb2.RunSpec], None], line: str):
    spec = minimal()
    change(spec)
    assert line in check(spec, ENVIRONMENTS, AGENTS)


def test_not_a_number_is_refused():
    spec = minimal()
    spec.sampling.temperature = float("nan")
    assert check(spec, ENVIRONMENTS, AGENTS) == ["sampling.temperature: given nan; allowed above 0..10"]


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
