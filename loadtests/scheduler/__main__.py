"""The scheduler as a measurement: python -m loadtests.scheduler --json [--quick] [--only rows|live|speed] [--out DIR].

The last line is JSON. Seven minutes at most on two cores; --quick takes a quarter of one, and shows only that it works.
"""

import argparse
import asyncio
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from forgerl.common.v1 import run_pb2

from loadtests.scheduler.durations import draw
from loadtests.scheduler.live import Live, Step, difference, recording, simulated
from loadtests.scheduler.live_broker import LiveOnBroker, broker
from loadtests.scheduler.plots import draw_plots
from loadtests.scheduler.speed import measure
from loadtests.scheduler.study import Row, quick_study, rows, whole_study
from loadtests.scheduler.tables import markdown
from loadtests.scheduler.traces import Fit, fitted
from loadtests.scheduler.world import Recording
from services.kernel.logs import configure

QUICK = (("ROLLING", "WINDOWED_FIFO"), ("COHORT", "auto"))
POLICIES = ("WINDOWED_FIFO", "STRICT_FIFO", "GREEDY", "VERSION_WINDOW", "auto")
WHOLE = tuple((mode, policy) for mode in ("ROLLING", "COHORT") for policy in POLICIES)


def main() -> None:
    """Exit code 1 when the service decided otherwise than the simulator."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the numbers as the last line")
    parser.add_argument("--quick", action="store_true", help="a small grid, short runs")
    parser.add_argument("--only", choices=("rows", "live", "speed"), help="leave the rest out")
    parser.add_argument("--out", type=Path, help="folder for rows.json, tables.md and the plots")
    parser.add_argument("--events", type=int, help="how many events are replayed (default 250,000; quick 20,000)")
    given = parser.parse_args()
    configure("loadtest", "ERROR")
    # Its client tells of a broker that is just starting as of errors.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    fit, result = fitted(), dict[str, Any]()
    if given.only in (None, "speed"):
        result |= _speed(fit, given.events or (20_000 if given.quick else 250_000), quick=given.quick)
    if given.only in (None, "live"):
        result |= _live(fit, quick=given.quick)
    if given.only in (None, "rows"):
        result["rows"] = _rows(fit, quick=given.quick)
    result["fit"] = asdict(fit)
    if given.out is not None and "rows" in result:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "rows.json").write_text(json.dumps(result, indent=1) + "\n")
        (given.out / "tables.md").write_text(markdown(result["rows"]))
        draw_plots(result["rows"], given.out)
    if given.json:
        print(json.dumps(result))
    if not result.get("live_equals_simulated", True):
        sys.exit(1)


def _rows(fit: Fit, *, quick: bool) -> list[Row]:
    """Simulated time is no clock's, so a core beside this one changes nothing but when it is over."""
    found: list[Row] = []
    study = list(quick_study() if quick else whole_study())
    started_s = time.monotonic()
    with ProcessPoolExecutor(min(len(study), os.cpu_count() or 1), get_context("spawn")) as pool:
        for number, (series, made) in enumerate(zip(study, pool.map(rows, study, repeat(fit)), strict=True), start=1):
            found += made
            base = series.base
            what = f"series {number} of {len(study)}: {base.mode} {base.regime} N = {base.ratio} C, C = {base.engines}"
            _tell(what, time.monotonic() - started_s)
    return found


def _speed(fit: Fit, events: int, *, quick: bool) -> dict[str, Any]:
    started_s = time.monotonic()
    items = draw("lognormal", events // 3 + 12_000, 1, fit)
    measured = measure(items, events=events, queued_items=10_000, episodes=20_000 if quick else 100_000)
    _tell("decisions, replay, memory", time.monotonic() - started_s)
    return asdict(measured)


def _live(fit: Fit, *, quick: bool) -> dict[str, Any]:
    """The application under every policy in both modes, then the whole bootstrap on each kind of broker that runs here:
    deadlines that cut, and groups that are dropped, in each.
    """
    compared, first = 0, ""
    for recorded in _recordings(fit, QUICK if quick else WHOLE, 160 if quick else 320):
        started_s = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            ours = asyncio.run(Live(Path(folder), recorded).steps())
        first = first or difference(ours, simulated(recorded))
        compared += _decisions(ours)
        _tell("live against simulated", time.monotonic() - started_s)
    on_brokers = dict[str, int]()
    for kind in ["tansu", *(["kafka"] if os.environ.get("KAFKA_HOME") and not quick else [])]:
        for recorded in _recordings(fit, QUICK[:1] if quick else QUICK, 40 if quick else 80):
            started_s = time.monotonic()
            ours = _on_broker(kind, recorded)
            first = first or difference(ours, simulated(recorded))
            on_brokers[kind] = on_brokers.get(kind, 0) + _decisions(ours)
            _tell(f"live on {kind} against simulated", time.monotonic() - started_s)
    return {
        "live_equals_simulated": not first,
        "live_decisions": compared,
        "live_decisions_on_broker": on_brokers,
        "live_difference": first,
    }


def _on_broker(kind: str, recorded: Recording) -> list[Step]:
    with tempfile.TemporaryDirectory() as name, broker(Path(name), kind) as url:
        return asyncio.run(LiveOnBroker(Path(name) / "live", recorded, url).steps())


def _decisions(steps: Sequence[Step]) -> int:
    return sum(len(decisions) for _, _, decisions in steps)


def _recordings(fit: Fit, chosen: Sequence[tuple[str, str]], episodes: int) -> Iterator[Recording]:
    for seed, (mode, policy) in enumerate(chosen):
        items = draw("lognormal", episodes, 100 + seed, fit)
        scheduling = run_pb2.SchedulingSpec(
            mode=f"SCHEDULING_MODE_{mode}",
            policy=f"SELECTION_POLICY_{policy.replace('auto', 'WINDOWED_FIFO')}",
            window="auto" if policy == "auto" else "",
            group_size=2,
            items_per_batch=2,
            queue_items=16,
            in_flight_items=8,
            lookahead_steps=8,
            deadline_s=5 * items.mean_s,
        )
        yield recording(items.durations_us, round(items.mean_s * 0.1e6), scheduling)


def _tell(what: str, seconds: float) -> None:
    print(f"{what}: {seconds:.1f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
