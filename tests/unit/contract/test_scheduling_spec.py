"""Defaults of the scheduling section, and the settings that a policy refuses rather than ignores."""

import pytest
from forgerl.common.v1 import run_pb2

from services.contract.run_spec import check, resolve
from services.scheduler.entrypoints.consumer import run_config

FIFO, GREEDY = run_pb2.SELECTION_POLICY_WINDOWED_FIFO, run_pb2.SELECTION_POLICY_GREEDY
STRICT, VERSIONS = run_pb2.SELECTION_POLICY_STRICT_FIFO, run_pb2.SELECTION_POLICY_VERSION_WINDOW
COHORT = run_pb2.SCHEDULING_MODE_COHORT


def spec(**scheduling: object) -> run_pb2.RunSpec:
    found = run_pb2.RunSpec(scheduling=run_pb2.SchedulingSpec(**scheduling), end=run_pb2.EndSpec(steps=1))
    found.model.path = "model"
    found.domains.add(name="tool")
    return found


def problems(**scheduling: object) -> list[str]:
    return check(spec(**scheduling), ["tool"], ["tool_loop"])


@pytest.mark.parametrize(
    ("given", "window", "lookahead", "versions"),
    [
        ({}, 10, 1, 0),  # ceil(0.3 * 32)
        ({"window": "0.1"}, 4, 1, 0),  # ceil(3.2)
        ({"window": "1"}, 32, 1, 0),
        ({"window": "auto", "window_items": 5}, 5, 1, 0),
        ({"policy": STRICT}, 1, 1, 0),
        ({"policy": GREEDY}, 32, 1, 0),
        ({"policy": VERSIONS, "lookahead_steps": 3}, 32, 3, 3),
        ({"policy": VERSIONS, "version_window_steps": 0}, 32, 1, 0),
        ({"mode": COHORT}, 10, 3, 0),  # 32 items are four batches of eight: three steps ahead
        ({"mode": COHORT, "queue_items": 33}, 10, 4, 0),
        ({"mode": COHORT, "lookahead_steps": 0}, 10, 0, 0),
    ],
)
def test_what_follows_from_other_fields(given: dict[str, object], window: int, lookahead: int, versions: int) -> None:
    found = resolve(spec(**given))
    scheduling = found.scheduling
    assert (scheduling.window_items, scheduling.lookahead_steps, scheduling.version_window_steps) == (
        window,
        lookahead,
        versions,
    )
    assert resolve(found) == found, "resolving twice changes nothing"
    assert problems(**given) == []
    config = run_config(found)
    assert (config.window_items, config.lookahead_steps, config.fleet_weight) == (window, lookahead, 1.0)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"window": "wide"}, "scheduling.window: given 'wide'; allowed auto, or a share of N above 0..1"),
        ({"window": "0"}, "scheduling.window: given '0'; allowed auto, or a share of N above 0..1"),
        ({"window": "1.5"}, "scheduling.window: given '1.5'; allowed auto, or a share of N above 0..1"),
        ({"window": "nan"}, "scheduling.window: given 'nan'; allowed auto, or a share of N above 0..1"),
        (
            {"window": "0.5", "window_items": 4},
            "scheduling.window_items: given 4 beside window '0.5', which is 16; allowed one of the two",
        ),
        (
            {"window": "auto", "policy": GREEDY},
            "scheduling.window: given 'auto' with greedy; allowed with windowed_fifo",
        ),
        ({"window_items": 4, "policy": GREEDY}, "scheduling.window_items: given 4; greedy implies 32"),
        ({"window_items": 4, "policy": STRICT}, "scheduling.window_items: given 4; strict_fifo implies 1"),
        (
            {"version_window_steps": 2},
            "scheduling.version_window_steps: given 2 with windowed_fifo; allowed with version_window",
        ),
        ({"drift_bound": 0.0}, "scheduling.drift_bound: given 0; allowed above 0"),
        ({"fleet_weight": 0.0}, "scheduling.fleet_weight: given 0; allowed above 0"),
        ({"fleet_weight": float("nan")}, "scheduling.fleet_weight: given nan; allowed above 0"),
        ({"keep_steps": 100_001}, "scheduling.keep_steps: given 100001; allowed 0..100000"),
    ],
)
def test_what_would_be_ignored_or_cannot_be_is_refused_by_name(given: dict[str, object], line: str) -> None:
    assert problems(**given) == [line]


@pytest.mark.parametrize("policy", [FIFO, STRICT, GREEDY, VERSIONS])
@pytest.mark.parametrize("mode", [run_pb2.SCHEDULING_MODE_ROLLING, COHORT])
def test_every_policy_and_mode_reaches_the_scheduler(policy: int, mode: int) -> None:
    config = run_config(resolve(spec(policy=policy, mode=mode)))
    assert config.selection == run_pb2.SelectionPolicy.Name(policy).removeprefix("SELECTION_POLICY_").lower()
    assert config.mode == run_pb2.SchedulingMode.Name(mode).removeprefix("SCHEDULING_MODE_").lower()


def test_everything_is_kept_unless_the_run_file_says_how_much() -> None:
    assert run_config(resolve(spec())).keep_steps == 0
    assert run_config(resolve(spec(keep_steps=7))).keep_steps == 7
    assert problems(keep_steps=7) == []
