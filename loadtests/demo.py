"""The demo as a measurement: python -m loadtests.demo --json [--seed S] [--steps N]; the last line is JSON."""

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from services.cli.demo.command import DemoOptions, run_demo


def main() -> None:
    """Exit code 1 when an episode was lost or trained twice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the numbers as the last line")
    parser.add_argument("--file", type=Path)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--engines", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("demo-out"))
    given = parser.parse_args()
    options = DemoOptions(
        file=given.file, seed=given.seed, steps=given.steps, engines=given.engines, out=given.out, instance="loadtest"
    )
    result = run_demo(options, Console(highlight=False, stderr=given.json))
    if given.json:
        print(json.dumps(result.as_json()))
    if result.audit.lost or result.audit.duplicated:
        sys.exit(1)


if __name__ == "__main__":
    main()
