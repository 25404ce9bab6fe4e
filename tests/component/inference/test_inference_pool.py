"""A real LMCache behind two real engines: KV is shared by policy, and the pool may die."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from engine_rig import Engine, make_model, running_engine, running_pool, sampled

from services.inference.adapters.policies import StoredPolicies
from services.kernel.blobs import Blobs

pytestmark = pytest.mark.engine
PROMPT = [(41 * at) % 250 for at in range(1000)]


async def test_kv_is_shared_under_one_policy_and_the_pool_may_be_killed(tmp_path: Path, eventually: Any) -> None:
    model = make_model(tmp_path / "model", tied=False, seed=3)
    with (
        running_pool(tmp_path) as (pool, port, healthy),
        running_engine(tmp_path, model, port) as first,
        running_engine(tmp_path, model, port) as second,
    ):
        for engine in (first, second):
            await engine.swap(model, "d1")
        ids, logprobs, cached, _ = sampled(await first.generate(PROMPT, "d1", 8, temperature=0.0))
        assert cached == 0
        await eventually(lambda: _blocks(tmp_path / "l3", "d1") >= 15)
        others, other_logprobs, cached, _ = sampled(await second.generate(PROMPT, "d1", 8, temperature=0.0))
        # 15 chunks of 64 tokens; the rest is computed anew.
        assert cached == 960 and others == ids
        assert max(abs(a - b) for a, b in zip(logprobs, other_logprobs, strict=True)) < 1e-4

        await second.swap(model, "d2")
        assert sampled(await second.generate(PROMPT, "d2", 8))[2] == 0

        pool.kill()
        await asyncio.wait_for(first.generate([7, *PROMPT], "d1", 8), 60.0)
        pool.start()
        healthy()
        # The lasting tier outlives the pool: an engine without the KV of its own finds it there.
        assert await _found_again(second, model) == 960

        await _prune(tmp_path, "d2")
        assert _blocks(tmp_path / "l3", "d1") == 0 and _blocks(tmp_path / "l3", "d2") >= 15
        assert len(sampled(await first.generate([9, *PROMPT], "d1", 8))[0]) == 8


async def _prune(folder: Path, keep: str) -> None:
    blobs = Blobs.open(f"file://{folder}/blobs")
    await StoredPolicies(blobs, folder / "copies", folder / "l3").prune(frozenset({keep}))


def _blocks(folder: Path, salt: str) -> int:
    return len([path for path in folder.iterdir() if path.name.endswith(f"@{salt}.data")])


async def _found_again(engine: Engine, model: Path) -> int:
    # The engine notices within a few heartbeats that the pool is back; each swap empties its own cache.
    async with asyncio.timeout(60.0):
        while True:
            await engine.swap(model, "d1")
            if cached := sampled(await engine.generate(PROMPT, "d1", 1))[2]:
                return cached
