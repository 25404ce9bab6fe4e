"""Fixtures: a tiny model and a trainer around it."""

from pathlib import Path

import pytest
from trainer_bench import Bench, make_model


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
