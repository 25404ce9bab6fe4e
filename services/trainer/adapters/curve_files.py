"""A run's curves as files: metrics.csv (rewritten whole, by rename) and TensorBoard events under DATA_DIR/runs/<run>.

It refuses to be a truth: both can be made again from the run's events.
"""

import csv
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from services.trainer.domain.histograms import Histogram


class CurveFiles:
    """See ports.Curves."""

    def __init__(self, root: Path) -> None:
        self._root = root
        # One run is trained at a time, and an open writer is a thread and a file.
        self._open_run = ""
        self._events: Any = None

    def record(
        self, run_id: str, steps: Sequence[tuple[int, Mapping[str, float]]], histograms: Mapping[str, Histogram]
    ) -> None:
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
        for name, histogram in histograms.items():
            if histogram.count:
                _draw(events, name, histogram, step)
        events.flush()

    def forget(self, run_id: str) -> None:
        """See Curves.forget."""
        if run_id == self._open_run:
            self._close()
        shutil.rmtree(self._root / run_id, ignore_errors=True)

    def _writer(self, run_id: str) -> Any:
        if run_id != self._open_run:
            # Imported late: TensorBoard takes a second that the service's start needn't wait for.
            from torch.utils.tensorboard import SummaryWriter

            self._close()
            self._open_run, self._events = run_id, SummaryWriter(str(self._root / run_id / "tensorboard"))
        return self._events

    def _close(self) -> None:
        if self._open_run:
            self._events.close()
        self._open_run, self._events = "", None


def _draw(events: Any, name: str, histogram: Histogram, step: int) -> None:
    """TensorBoard's buckets are named by their upper limits; the open ones end at the lowest and highest value."""
    events.add_histogram_raw(
        f"histogram/{name}",
        min=histogram.low,
        max=histogram.high,
        num=histogram.count,
        sum=histogram.total,
        sum_squares=histogram.squares,
        bucket_limits=[*histogram.edges, max(histogram.high, histogram.edges[-1])],
        bucket_counts=list(histogram.counts),
        global_step=step,
    )
