"""One simulated run and its figures. The run is driven by the service's own decisions; figures are taken after a
warm-up. Refuses to compare runs: that is study's part.
"""

import gc
import math
from dataclasses import dataclass

import numpy as np

from loadtests.scheduler.durations import Items
from loadtests.scheduler.platform import Imagined, Trace
from services.scheduler.domain.auto_window import CLASSES
from services.scheduler.domain.config import RunConfig
from services.scheduler.domain.state import State
from services.scheduler.domain.what_if import what_if

UNBOUNDED_S = 1e9
LARGE = 1_000
REFERENCE_POINTS = 2_000
CHANCE_ITEMS = 8_000


@dataclass(frozen=True, slots=True)
class Case:
    """What is simulated: C engines, N = ratio C, batches of C / 2, W in items (0 with auto), S from N.

    deadline_quantile: share of items whose duration lies within the deadline; 1 = none is cut. discard_share: of a
    cohort, never waited for. load: the trainer's time for a batch over the time in which the engines make one.
    """

    mode: str
    policy: str
    window_items: int
    ratio: int
    engines: int
    regime: str
    deadline_quantile: float = 1.0
    discard_share: float = 0.0
    load: float = 0.8
    drift_bound: float = 0.05

    @property
    def queue_items(self) -> int:
        """N."""
        return self.ratio * self.engines

    @property
    def batch_items(self) -> int:
        """P."""
        return max(1, self.engines // 2)

    @property
    def auto(self) -> bool:
        """The window follows durations."""
        return self.window_items == 0

    @property
    def warm_up_items(self) -> int:
        """Consumed before figures are taken: a cohort; or a queue and ten rounds of the engines, three of many."""
        if self.mode == "cohort":
            return self.queue_items
        return self.queue_items + (10 if self.engines <= LARGE else 3) * self.engines

    def config(self, deadline_s: float) -> RunConfig:
        """The run's schedule. A cohort's look-ahead is N = (S + 1) P; a rolling queue has a batch more for the trainer
        at work, and one for the batch being filled.
        """
        steps = -(-self.queue_items // self.batch_items)
        return RunConfig(
            domains=(("agent", 1.0),),
            group_size=1,
            items_per_batch=self.batch_items,
            queue_items=self.queue_items,
            window_items=min(self.queue_items, self.window_items or self.batch_items),
            in_flight_items=self.engines,
            lookahead_steps=steps - 1 if self.mode == "cohort" else steps + 1,
            deadline_s=deadline_s,
            max_staleness_steps=0,
            min_reward_spread=0.0,
            selection=self.policy,
            mode=self.mode,
            version_window_steps=steps,
            window_auto=self.auto,
            drift_bound=self.drift_bound,
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """Of the time after warm-up. Drift is less what random batches of that size have by chance; W1 in mean durations;
    stall in seconds a batch; lag in optimiser steps.
    """

    items_per_s: float
    trainer_idle_share: float
    hol_stall_s: float
    hol_stall_share: float
    lag_mean: float
    lag_p99: float
    drift_kl_difficulty: float
    drift_kl_duration: float
    drift_w1_duration: float
    dropped_share: float
    window_items: float


def run(case: Case, items: Items, measured_items: int) -> Figures:
    """Simulate until so many items were trained after the warm-up. The same case and items give the same figures."""
    deadline_s = UNBOUNDED_S
    if case.deadline_quantile < 1.0:
        deadline_s = float(np.quantile(items.durations_us, case.deadline_quantile)) / 1e6
    step_us = round(case.load * case.batch_items * items.mean_s / case.engines * 1e6)
    platform = Imagined(case.config(deadline_s), items.durations_us, step_us, case.discard_share)
    wanted = (case.warm_up_items + measured_items) // case.batch_items
    trace = platform.trace
    gc.disable()  # nothing here is a cycle while it lives, and a scan of a long queue takes longer than many decisions
    try:
        for _ in what_if(platform, State()):
            if len(trace.done_us) >= wanted:
                break
    finally:
        gc.enable()
    if len(trace.done_us) < wanted:
        raise RuntimeError(f"{case}: {len(trace.done_us)} of {wanted} batches: too few items")
    return figures(case, items, trace)


def figures(case: Case, items: Items, trace: Trace) -> Figures:
    """Figures of what happened after the warm-up."""
    batch, first = case.batch_items, -(-case.warm_up_items // case.batch_items)
    last = len(trace.done_us) - 1
    span_us = trace.done_us[last] - trace.done_us[first - 1]
    busy_us = sum(end - begin for begin, end in zip(trace.begun_us[first:], trace.done_us[first:], strict=True))
    taken = np.array(trace.taken[first * batch : (last + 1) * batch])
    lags = np.array(trace.lags[first * batch : (last + 1) * batch])
    stall_s = trace.stalled_s[last] - trace.stalled_s[first - 1]
    dropped = [number for number in trace.dropped if number >= first * batch]
    return Figures(
        items_per_s=len(taken) / span_us * 1e6,
        trainer_idle_share=1.0 - busy_us / span_us,
        hol_stall_s=stall_s / (last + 1 - first),
        hol_stall_share=stall_s / (span_us / 1e6),
        lag_mean=float(lags.mean()),
        lag_p99=float(np.quantile(lags, 0.99)),
        drift_kl_difficulty=_kl(items.hardness[taken], batch) - chance_kl(batch),
        drift_kl_duration=_kl(items.length[taken], batch) - chance_kl(batch),
        drift_w1_duration=_w1(items, taken, batch) - _w1(items, _random(items, batch), batch),
        dropped_share=len(dropped) / (len(taken) + len(dropped)),
        window_items=float(np.mean(trace.windows[first:])),
    )


def chance_kl(batch_items: int) -> float:
    """Expected KL (nats) of a batch drawn at random from equally likely classes: it is never zero."""
    share, log_all = 1.0 / CLASSES, math.lgamma(batch_items + 1)
    total = 0.0
    for count in range(1, batch_items + 1):
        log_ways = log_all - math.lgamma(count + 1) - math.lgamma(batch_items - count + 1)
        chance = math.exp(log_ways + count * math.log(share) + (batch_items - count) * math.log(1.0 - share))
        total += chance * count / batch_items * math.log(count / batch_items * CLASSES)
    return CLASSES * total


def _random(items: Items, batch_items: int) -> np.ndarray:
    return np.random.default_rng(0).integers(
        0, len(items.durations_us), max(1, CHANCE_ITEMS // batch_items) * batch_items
    )


def _kl(ranks: np.ndarray, batch_items: int) -> float:
    """Mean KL (nats) of batches against the submitted mix, in classes of equal probability."""
    classes = np.minimum((ranks * CLASSES).astype(int), CLASSES - 1).reshape(-1, batch_items)
    shares = np.stack([(classes == index).mean(axis=1) for index in range(CLASSES)], axis=1)
    terms = np.where(shares > 0, shares * np.log(np.maximum(shares, 1e-300) * CLASSES), 0.0)
    return float(terms.sum(axis=1).mean())


def _w1(items: Items, numbers: np.ndarray, batch_items: int) -> float:
    """Mean Wasserstein-1 distance of batches' durations from all items' durations, in mean durations."""
    durations_s = np.array(items.durations_us) / 1e6
    points = max(1, math.ceil(REFERENCE_POINTS / batch_items)) * batch_items
    levels = (np.arange(points) + 0.5) / points
    # By a sort of all: quantiles asked for by the thousand cost more than the run.
    places = levels * (len(durations_s) - 1)
    reference_s = np.interp(places, np.arange(len(durations_s)), np.sort(durations_s)).reshape(1, batch_items, -1)
    batches_s = np.sort(durations_s[numbers].reshape(-1, batch_items), axis=1)[:, :, None]
    return float(np.abs(batches_s - reference_s).mean()) / items.mean_s
