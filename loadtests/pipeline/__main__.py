"""The pipeline as a measurement: python -m loadtests.pipeline --json [--quick] [--broker kafka|tansu|both].

The last line is JSON: one object with the figures of the first broker, and all of them under `runs`. Exit code 1 when
an episode was lost or came twice. About five minutes a broker; --quick: a few hundred episodes, Tansu, no Temporal.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from loadtests.pipeline.measure import Sizes, measured
from services.kernel.logs import configure

FULL = Sizes(batches=32, killed_batches=16, temporal_batches=20)
QUICK = Sizes(batches=2, killed_batches=3, temporal_batches=0)


def main() -> None:
    """Runs every broker that is asked for, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the numbers as the last line")
    parser.add_argument("--quick", action="store_true", help="a few hundred episodes with a kill, on Tansu")
    parser.add_argument("--broker", choices=("kafka", "tansu", "both"), help="default: both where KAFKA_HOME is set")
    parser.add_argument("--kill", choices=("gateway", "scheduler", "reward"), default="scheduler")
    parser.add_argument("--batches", type=int, help="batches of 128 episodes of the timed leg")
    parser.add_argument("--only-temporal", action="store_true", help="nothing but the legs with Temporal")
    parser.add_argument("--no-temporal", action="store_true", help="leave the legs with Temporal out")
    parser.add_argument("--keep", type=Path, help="folder for stores and logs, kept afterwards")
    given = parser.parse_args()
    configure("loadtest", "ERROR")
    sizes = QUICK if given.quick else FULL
    if given.batches:
        sizes = Sizes(given.batches, sizes.killed_batches, sizes.temporal_batches)
    if given.only_temporal:
        sizes = Sizes(0, 0, given.batches or FULL.temporal_batches)
    if given.no_temporal:
        sizes = Sizes(sizes.batches, sizes.killed_batches, 0)
    both = ("kafka", "tansu") if os.environ.get("KAFKA_HOME") else ("tansu",)
    kinds = both if given.broker == "both" or not (given.broker or given.quick) else (given.broker or "tansu",)
    runs: list[dict[str, object]] = []
    for kind in kinds:
        with tempfile.TemporaryDirectory(prefix=f"pipeline-{kind}-") as temporary:
            folder = (given.keep or Path(temporary)) / kind
            runs.append(asyncio.run(measured(folder, kind, sizes, given.kill)))
            print(json.dumps(runs[-1], indent=1), file=sys.stderr, flush=True)
    first = {name: value for name, value in runs[0].items() if name != "legs"}
    worst = {name: sum(int(str(run[name])) for run in runs) for name in ("lost", "duplicated")}
    if given.json:
        print(json.dumps(first | worst | {"runs": runs}))
    if any(worst.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
