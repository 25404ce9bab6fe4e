"""A run's curves as files: metrics.csv (rewritten whole, by rename) and TensorBoard events under DATA_DIR/runs/<run>.

It refuses to be a truth: both can be made again from the run's events.
"""

import csv
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class CurveFiles:
    """See ports.Curves."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._writers: dict[str, Any] = {}

    def record(self, run_id: str, steps: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        """See Curves.record."""
        folder = self._root / run_id
        folder.mkdir(parents=True, exist_ok=True)
        names = sorted({name for _, metrics in steps for name in metrics})
        draft = folder / "metrics.csv.tmp"
        with draft.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["step", *names])
            writer.writerows([step, *(metrics.get(name, "") for name in names)] for step, metrics in steps)
        draft.replace(folder / "metrics.csv")
        step, metrics = steps[-1]
        events = self._writer(run_id)
        for name, value in metrics.items():
            events.add_scalar(name.replace(".", "/"), value, step)
        events.flush()

    def forget(self, run_id: str) -> None:
        """See Curves.forget."""
        writer = self._writers.pop(run_id, None)
        if writer is not None:
            writer.close()
        shutil.rmtree(self._root / run_id, ignore_errors=True)

    def _writer(self, run_id: str) -> Any:
        if run_id not in self._writers:
            # Imported late: TensorBoard takes a second that the service's start needn't wait for.
            from torch.utils.tensorboard import SummaryWriter

            self._writers[run_id] = SummaryWriter(str(self._root / run_id / "tensorboard"))
        return self._writers[run_id]
