"""A run file's defaults, and every problem of a run file, each as one line "field: given X; allowed Y".

It refuses to read files and to look models up: paths are checked by whoever can see them.
"""

import math
import re
from collections.abc import Collection

from forgerl.common.v1 import run_pb2

from services.contract import scheduling_spec, training_spec
from services.contract.bounds import FINITE, INT64_MAX, LONGEST_S, MOST_ITEMS, UINT32_MAX, within
from services.contract.rewards import RewardWeights, ordering_problems
from services.contract.scheduling_spec import check_scheduling, fill_scheduling
from services.contract.training_spec import check_training, fill_training

RUN_ID = re.compile(r"[a-z0-9-]{1,40}")
"""Also a part of episode ids, file names and Kafka keys."""

HOTTEST = 2.0
"""What the engines take at most (vLLM 0.32)."""

_SAMPLING = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 160}
_REWARD = {"alpha": 0.1, "beta": 0.02, "gamma": 1.0, "time_base_s": 0.0}
_EVALUATION = {"tasks_per_domain": 100, "at_start": True, "at_end": True}
_DOMAIN = {"weight": 1.0, "agent_timeout_s": 60.0, "max_turns": 8}
_DEFAULT_AGENT = "tool_loop"


def resolve(spec: run_pb2.RunSpec) -> run_pb2.RunSpec:
    """A copy with every default filled in; resolving twice changes nothing."""
    resolved = run_pb2.RunSpec()
    resolved.CopyFrom(spec)
    for domain in resolved.domains:
        domain.environment = domain.environment or domain.name
        domain.agent = domain.agent or _DEFAULT_AGENT
        _fill(domain, _DOMAIN)
    _fill(resolved.sampling, _SAMPLING)
    _fill(resolved.scheduling, scheduling_spec.DEFAULTS)
    _fill(resolved.reward, _REWARD)
    _fill(resolved.training, training_spec.DEFAULTS)
    _fill(resolved.evaluation, _EVALUATION)
    fill_scheduling(resolved.scheduling)
    fill_training(resolved.training)
    return resolved


def check(spec: run_pb2.RunSpec, environments: Collection[str], agents: Collection[str]) -> list[str]:
    """Every problem of the spec, defaults filled in first, in the order of its fields; empty when it may run."""
    resolved = resolve(spec)
    problems: list[str] = []
    if resolved.seed > INT64_MAX:
        problems.append(f"seed: given {resolved.seed}; allowed 0..{INT64_MAX}")
    if not resolved.model.path:
        problems.append("model.path: given nothing; allowed a Hugging Face model directory")
    problems += _check_domains(resolved, environments, agents)
    problems += _check_sampling(resolved.sampling)
    problems += check_scheduling(resolved)
    problems += _check_reward(resolved)
    problems += check_training(resolved)
    problems += within("evaluation.tasks_per_domain", resolved.evaluation.tasks_per_domain, 0, MOST_ITEMS)
    problems += _check_end(resolved.end)
    return problems


def check_run_id(run_id: str) -> list[str]:
    """The problem of a run id, if it has one."""
    if RUN_ID.fullmatch(run_id):
        return []
    return [f"run_id: given {run_id!r}; allowed 1..40 characters of a-z, 0-9 and -"]


Section = (
    run_pb2.DomainSpec
    | run_pb2.SamplingSpec
    | run_pb2.SchedulingSpec
    | run_pb2.RewardSpec
    | run_pb2.TrainingSpec
    | run_pb2.EvaluationSpec
    | run_pb2.EndSpec
)


def _fill(section: Section, defaults: dict[str, float] | dict[str, int] | dict[str, float | int]) -> None:
    for name, value in defaults.items():
        if not section.HasField(name):  # type: ignore[arg-type]
            setattr(section, name, value)


def _check_domains(spec: run_pb2.RunSpec, environments: Collection[str], agents: Collection[str]) -> list[str]:
    if not spec.domains:
        return [f"domains: given none; allowed one or more of {', '.join(sorted(environments))}"]
    problems: list[str] = []
    names: set[str] = set()
    for index, domain in enumerate(spec.domains):
        where = f"domains[{index}]"
        if not RUN_ID.fullmatch(domain.name.replace("_", "-")):
            problems.append(f"{where}.name: given {domain.name!r}; allowed 1..40 characters of a-z, 0-9, - and _")
        if domain.name in names:
            problems.append(f"{where}.name: given {domain.name!r} twice; allowed once")
        names.add(domain.name)
        if domain.environment not in environments:
            allowed = ", ".join(sorted(environments))
            problems.append(f"{where}.environment: given {domain.environment!r}; allowed {allowed}")
        if domain.agent not in agents:
            problems.append(f"{where}.agent: given {domain.agent!r}; allowed {', '.join(sorted(agents))}")
        problems += within(f"{where}.weight", domain.weight, 0.0, FINITE)
        problems += within(f"{where}.agent_timeout_s", domain.agent_timeout_s, 0.0, LONGEST_S, open_low=True)
        problems += within(f"{where}.max_turns", domain.max_turns, 1, UINT32_MAX)
    total = sum(domain.weight for domain in spec.domains)
    if not 0 < total <= FINITE and not problems:
        problems.append(f"domains: given weights that sum to {total:g}; allowed a sum above 0, finite")
    return problems


def _check_sampling(sampling: run_pb2.SamplingSpec) -> list[str]:
    return [
        *within("sampling.temperature", sampling.temperature, 0.0, HOTTEST, open_low=True),
        *within("sampling.top_p", sampling.top_p, 0.0, 1.0, open_low=True),
        *within("sampling.max_tokens", sampling.max_tokens, 1, UINT32_MAX),
    ]


def _check_reward(spec: run_pb2.RunSpec) -> list[str]:
    reward = spec.reward
    problems = [
        *within("reward.alpha", reward.alpha, 0.0, math.inf),
        *within("reward.beta", reward.beta, 0.0, FINITE),
        *within("reward.gamma", reward.gamma, 0.0, 1.0, open_low=True),
        *within("reward.time_base_s", reward.time_base_s, 0.0, FINITE),
    ]
    if problems:
        return problems
    weights = RewardWeights(reward.alpha, reward.beta, reward.gamma, reward.time_base_s)
    return ordering_problems(weights, max((domain.max_turns for domain in spec.domains), default=1))


def _check_end(end: run_pb2.EndSpec) -> list[str]:
    names = ("steps", "episodes", "time_s", "target_reward")
    given = [name for name in names if end.HasField(name)]
    if not given:
        return [f"end: given nothing; allowed one or more of {', '.join(names)}"]
    problems: list[str] = []
    for name in given:
        if name == "target_reward":
            problems += within("end.target_reward", end.target_reward, -1.0, 2.0)
        elif name == "time_s":
            problems += within("end.time_s", end.time_s, 0.0, LONGEST_S, open_low=True)
        else:
            problems += within(f"end.{name}", getattr(end, name), 1, math.inf)
    return problems
