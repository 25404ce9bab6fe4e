"""Fixtures of the gateway's component tests."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from gateway_engine import ScriptedEngine
from gateway_rig import Rig


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    """One scripted engine."""
    scripted = ScriptedEngine()
    await scripted.start()
    yield scripted
    await scripted.stop()


@pytest.fixture
async def rig(tmp_path: Path, engine: ScriptedEngine) -> AsyncIterator[Rig]:
    """One gateway."""
    gateway = Rig(tmp_path, [engine])
    await gateway.start()
    yield gateway
    await gateway.stop()
