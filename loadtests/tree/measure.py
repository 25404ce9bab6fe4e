"""One workload measured: theory, time in pairs, exactness and memory, against samples per request and per chain."""

# transformers' modules are untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from loadtests.tree.checks import largest_error, peak_bytes
from loadtests.tree.model import build_exact_model, build_model
from loadtests.tree.steps import Weights, forest_step, library_step, random_weights, step_on
from loadtests.tree.timing import Comparison, Pairs, Part, Rivals, compare, timed
from loadtests.tree.workloads import Sample, Workload
from services.trainer.adapters.pace import measure_pace
from services.trainer.domain.losses import Cispo
from services.trainer.domain.merging import Pace
from services.trainer.ports import Recipe
from services.trainer.tree.choice import Choice, choose, work_of
from services.trainer.tree.cost import ModelCost, model_cost
from services.trainer.tree.forest import build_forest

SIDE_BY_SIDE_TOKENS = 4096
"""Samples of one length are batched up to this many tokens where that is the faster baseline."""

PART_FACTOR = 2
"""A baseline is dealt into parts that cost about this many times ours, or more:"""

MOST_PARTS = 8

FEWEST_PAIRS, MOST_PAIRS = 5, 30

FEWEST_CLOSE_PAIRS = 10
"""Where two ways are all but equal, and a hundredth is asked for."""

PAIRS_S = 25.0
"""Seconds a row's pairs may take before there are no more of them than the fewest."""

CHOOSING_GOES = 4
"""Runs of each baseline on some samples, in turn, before the fastest is held against ours."""

MOST_ERROR = 1e-12

CAP = 5.0
"""Of CISPO: any loss will do where only the pace is measured."""


@dataclass(frozen=True, slots=True)
class Options:
    """`seed`: of data, weights and model; `rounds`: of each baseline's parts; `budget_tokens`: slots at once, ours."""

    seed: int
    rounds: int
    budget_tokens: int


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table. `ratio`: speed-up over theory, and where `ratio_of` says so the better of merged's and
    unmerged's time over ours. `missed`: what is wanted and wasn't reached, in words."""

    workload: str
    unit: str
    theory: float
    speedup: float
    ratio: float
    ratio_of: str
    wanted: float
    max_rel_err: float
    peak_mem_ratio: float
    tokens_before: int
    tokens_after: int
    way: str
    baseline: str
    times: Comparison
    pace: Pace
    missed: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def rows_of(workload: Workload, options: Options) -> list[Row]:
    """Both units where they differ, else one row."""
    if len(workload.chains) == len(workload.requests):
        return [_Measurement(workload, "per request and per chain", options).row()]
    return [_Measurement(workload, unit, options).row() for unit in ("per request", "per chain")]


class _Measurement:
    def __init__(self, workload: Workload, unit: str, options: Options) -> None:
        self._workload, self._unit, self._options = workload, unit, options
        self._samples = workload.chains if unit == "per chain" else workload.requests
        self._wanted = workload.wanted_chains if unit == "per chain" else workload.wanted_requests
        self._model = build_model(torch.float32, options.seed, workload.vocabulary)
        self._cost: ModelCost = model_cost(self._model.config)
        self._weights = random_weights(self._samples, options.seed, torch.float32)
        # As a run does when it begins.
        self._pace = measure_pace(self._model, Recipe(Cispo(CAP), 0, options.budget_tokens))

    def row(self) -> Row:
        ids, trained = [s.ids_T for s in self._samples], [np.flatnonzero(s.trained_T) for s in self._samples]
        merged = build_forest(ids)
        theory = self._operations(self._samples) / work_of(merged, trained, self._cost).operations
        label, baseline = self._best_baseline()
        choice = self._choice()
        times = compare(self._parts(theory, baseline), self._rivals(), self._pairs(theory))
        ratio_of, ratio = "theory", times.speedup / theory
        if times.against_merged is not None:
            ratio_of, ratio = "the better of merged and unmerged", min(times.speedup, times.against_merged)
        error, memory = self._error(), self._memory()
        return Row(
            workload=f"{self._workload.name}; {self._unit}",
            unit=self._unit,
            theory=theory,
            speedup=times.speedup,
            ratio=ratio,
            ratio_of=ratio_of,
            wanted=self._wanted,
            max_rel_err=error,
            peak_mem_ratio=memory,
            tokens_before=sum(len(sample) for sample in ids),
            tokens_after=len(choice.forest.token_ids_S),
            way=choice.way.value,
            baseline=label,
            times=times,
            pace=self._pace,
            missed=self._missed((ratio, times.speedup, error, memory)),
        )

    def _missed(self, reached: tuple[float, float, float, float]) -> tuple[str, ...]:
        ratio, speedup, error, memory = reached
        least = self._workload.least_requests if self._unit == "per request" else 0.0
        checks = (
            (ratio >= self._wanted, f"ratio {ratio:.3f}, wanted {self._wanted} or more"),
            (speedup > least, f"speed-up {speedup:.2f}, wanted above {least}"),
            (error <= MOST_ERROR, f"error {error:.1e}, wanted {MOST_ERROR:.0e} at most"),
            (memory <= self._workload.most_memory, f"memory {memory:.2f}, wanted {self._workload.most_memory} at most"),
        )
        return tuple(text for reached, text in checks if not reached)

    def _rivals(self) -> Rivals:
        """Ours, and merging whatever it costs where the ratio is to the better way."""
        model, samples, weights, budget = self._model, self._samples, self._weights, self._options.budget_tokens

        def merged() -> None:
            model.zero_grad(set_to_none=True)
            forest_step(model, samples, weights, budget, merge=True)

        return Rivals(lambda: self._ours(samples, weights), merged if self._close else None)

    def _ours(self, samples: Sequence[Sample], weights: Weights) -> None:
        """As the trainer does: the choice, then the pass."""
        self._model.zero_grad(set_to_none=True)
        step_on(self._choice(samples).forest, self._model, samples, weights, self._options.budget_tokens)

    def _choice(self, samples: Sequence[Sample] | None = None) -> Choice:
        given = self._samples if samples is None else samples
        ids, trained = [s.ids_T for s in given], [np.flatnonzero(s.trained_T) for s in given]
        return choose(ids, trained, self._model.config, self._cost, self._pace)

    def _error(self) -> float:
        exact = build_exact_model(self._options.seed, self._workload.vocabulary)
        return largest_error(exact, self._samples, self._options.seed, self._options.budget_tokens)

    def _memory(self) -> float:
        longest = max(range(len(self._samples)), key=lambda index: len(self._samples[index].ids_T))
        alone = self._peak([self._samples[longest]], [self._weights[longest]])
        return self._peak(self._samples, self._weights) / alone

    def _peak(self, samples: Sequence[Sample], weights: Weights) -> int:
        return peak_bytes(self._model, lambda: self._ours(samples, weights))

    def _operations(self, samples: Sequence[Sample]) -> float:
        trained = [np.flatnonzero(s.trained_T) for s in samples]
        return work_of(build_forest([s.ids_T for s in samples], merge=False), trained, self._cost).operations

    def _pairs(self, theory: float) -> Pairs:
        fewest = FEWEST_CLOSE_PAIRS if self._close else FEWEST_PAIRS
        return Pairs(max(self._options.rounds * self._part_count(theory), fewest), MOST_PAIRS, PAIRS_S)

    @property
    def _close(self) -> bool:
        return self._workload.against_better and self._unit != "per request"

    def _part_count(self, theory: float) -> int:
        return max(1, min(MOST_PARTS, round(theory / PART_FACTOR)))

    def _parts(self, theory: float, baseline: Callable[[Sequence[Sample], Weights], object]) -> list[Part]:
        """Neighbours in length are dealt out two by two, so that what could lie side by side still can."""
        order = sorted(range(len(self._samples)), key=lambda index: len(self._samples[index].ids_T))
        count, whole = self._part_count(theory), self._operations(self._samples)
        parts: list[Part] = []
        for part in range(count):
            chosen = [index for place, index in enumerate(order) if place // 2 % count == part]
            samples, weights = [self._samples[i] for i in chosen], [self._weights[i] for i in chosen]
            parts.append(
                Part(lambda s=samples, w=weights: self._run(baseline, s, w), self._operations(samples) / whole)
            )
        return parts

    def _run(
        self, step: Callable[[Sequence[Sample], Weights], object], samples: Sequence[Sample], weights: Weights
    ) -> None:
        self._model.zero_grad(set_to_none=True)
        step(samples, weights)

    def _best_baseline(self) -> tuple[str, Callable[[Sequence[Sample], Weights], object]]:
        """The fastest on some of the samples of middling length."""
        model, budget = self._model, self._options.budget_tokens
        baselines: dict[str, Callable[[Sequence[Sample], Weights], object]] = {
            "library, one by one": lambda s, w: library_step(model, s, w, 1),
            "library, side by side": lambda s, w: library_step(model, s, w, SIDE_BY_SIDE_TOKENS),
            "packed end to end": lambda s, w: forest_step(model, s, w, budget, merge=False),
        }
        order = sorted(range(len(self._samples)), key=lambda index: len(self._samples[index].ids_T))
        middle = len(order) // 2
        length = len(self._samples[order[middle]].ids_T)
        count = max(2, SIDE_BY_SIDE_TOKENS // length)
        chosen = order[max(0, middle - count // 2) : middle + (count + 1) // 2]
        samples, weights = [self._samples[i] for i in chosen], [self._weights[i] for i in chosen]
        seconds: dict[str, float] = dict.fromkeys(baselines, float("inf"))
        for _ in range(CHOOSING_GOES):
            for name, run in baselines.items():
                taken = timed(lambda b=run: self._run(b, samples, weights)).cpu
                seconds[name] = min(seconds[name], taken)
        label = min(seconds, key=lambda name: seconds[name])
        return label, baselines[label]
