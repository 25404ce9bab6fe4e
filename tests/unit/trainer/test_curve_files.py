"""Curves of several runs, one after the other."""

import threading
from pathlib import Path

from services.trainer.adapters.curve_files import CurveFiles


def test_only_the_run_that_is_trained_has_an_open_writer(tmp_path: Path) -> None:
    curves = CurveFiles(tmp_path)
    before = threading.active_count()
    for run_id in ("one", "two", "three", "one"):
        curves.record(run_id, [(1, {"loss": 0.5})], {})
    assert threading.active_count() == before + 1
    assert len(list((tmp_path / "one" / "tensorboard").iterdir())) == 2
    curves.forget("two")
    curves.forget("one")
    assert threading.active_count() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["three"]
