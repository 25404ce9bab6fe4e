"""Fits durations of agents' episodes to recorded coding-agent sessions, and keeps the fit with its figures.

python -m loadtests.scheduler.traces SESSIONS.jsonl.gz writes fitted.json beside this file; the simulator reads that, so
it runs without the sessions. Refuses sessions that hold too few episodes.

An episode is what an agent does between a person's message and the end of its turn, with one tool call at least: the
seconds of its requests plus those between them. A gap above GAP_LIMIT_S is a person's, who was asked for something,
and counts as that much: here a tool would have run into its timeout.
"""

import gzip
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

FITTED = Path(__file__).with_name("fitted.json")
GAP_LIMIT_S = 300.0
_LEAST_EPISODES = 30


@dataclass(frozen=True, slots=True)
class Fit:
    """Parameters by maximum likelihood. Log-normal: mean and deviation of ln(s). Pareto (type II, Lomax): survival
    (1 + d / scale_s)^-shape. `ks_*`: Kolmogorov-Smirnov distance of each from the episodes.
    """

    sessions: int
    episodes: int
    mean_s: float
    median_s: float
    p90_s: float
    max_s: float
    log_mean: float
    log_deviation: float
    pareto_shape: float
    pareto_scale_s: float
    lognormal_nats: float
    pareto_nats: float
    ks_lognormal: float
    ks_pareto: float


def episodes_s(sessions: Iterable[Sequence[dict[str, Any]]]) -> Iterator[float]:
    """Seconds of each episode in sessions given by their requests."""
    for requests in sessions:
        spent_s, count, end_s = 0.0, 0, 0.0
        for request in requests:
            if count:
                spent_s += min(max(0.0, request["t"] - end_s), GAP_LIMIT_S)
            busy_s = request.get("api_time", 0.0)
            spent_s, count = spent_s + busy_s, count + 1
            end_s = max(end_s, request["t"] + busy_s)
            if request["stop"] == "end_turn":
                if count > 1:
                    yield spent_s
                spent_s, count = 0.0, 0
        if count > 1:
            yield spent_s


def fit(sessions: Sequence[Sequence[dict[str, Any]]]) -> Fit:
    """Both distributions, fitted to the same episodes. Raises ValueError when there are too few."""
    seen = np.sort([duration_s for duration_s in episodes_s(sessions) if duration_s > 0])
    if len(seen) < _LEAST_EPISODES:
        raise ValueError(f"sessions: given {len(seen)} episodes; allowed {_LEAST_EPISODES} or more")
    logs = np.log(seen)
    mean, deviation = float(logs.mean()), float(logs.std())
    shape, scale_s, pareto_nats = _lomax(seen)
    below = np.array([0.5 * math.erfc((mean - x) / deviation / math.sqrt(2.0)) for x in logs])
    return Fit(
        sessions=len(sessions),
        episodes=len(seen),
        mean_s=float(seen.mean()),
        median_s=float(np.median(seen)),
        p90_s=float(np.quantile(seen, 0.9)),
        max_s=float(seen[-1]),
        log_mean=mean,
        log_deviation=deviation,
        pareto_shape=shape,
        pareto_scale_s=scale_s,
        lognormal_nats=float(-len(seen) * (math.log(deviation * math.sqrt(2 * math.pi)) + 0.5) - logs.sum()),
        pareto_nats=pareto_nats,
        ks_lognormal=_distance(below),
        ks_pareto=_distance(1.0 - (1.0 + seen / scale_s) ** -shape),
    )


def _lomax(seen: np.ndarray) -> tuple[float, float, float]:
    """For a given scale the best shape is n / sum(ln(1 + d / scale)); the scale is searched on a grid of 0.5%."""
    scales_s = np.exp(np.arange(math.log(1.0), math.log(1e5), 0.005))
    sums = np.array([np.log1p(seen / scale_s).sum() for scale_s in scales_s])
    shapes = len(seen) / sums
    nats = len(seen) * (np.log(shapes) - np.log(scales_s)) - (shapes + 1.0) * sums
    best = int(np.argmax(nats))
    return float(shapes[best]), float(scales_s[best]), float(nats[best])


def _distance(below: np.ndarray) -> float:
    steps = np.arange(len(below) + 1) / len(below)
    return float(max((steps[1:] - below).max(), (below - steps[:-1]).max()))


def read_sessions(path: Path) -> list[list[dict[str, Any]]]:
    """The requests of each session of a gzipped file, one JSON object a line."""
    with gzip.open(path, "rt") as lines:
        return [json.loads(line)["requests"] for line in lines]


def fitted() -> Fit:
    """The fit that is kept with the code."""
    return Fit(**json.loads(FITTED.read_text()))


def main() -> None:
    """Fit anew and keep it."""
    found = fit(read_sessions(Path(sys.argv[1])))
    FITTED.write_text(json.dumps(asdict(found), indent=2) + "\n")
    print(FITTED.read_text())


if __name__ == "__main__":
    main()
