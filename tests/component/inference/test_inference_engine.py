"""A real vLLM under the sidecar's adapter: weights, gate and caches do what the system builds on."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from engine_rig import Engine, forward_logprobs, make_model, running_engine, sampled

from services.kernel.errors import Refused

# One event loop for the module: the engine outlives its tests.
pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]
PROMPT = [(37 * at) % 250 for at in range(150)]


@dataclass(frozen=True, slots=True)
class Rig:
    engine: Engine
    one: Path
    other: Path
    misfit: Path


@pytest.fixture(scope="module", params=["untied", "tied"])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder, tied = tmp_path_factory.mktemp(request.param), request.param == "tied"
    one, other = (make_model(folder / f"model-{seed}", tied=tied, seed=seed) for seed in (0, 1))
    misfit = make_model(folder / "misfit", tied=not tied, seed=0)
    with running_engine(folder, one) as engine:
        yield Rig(engine, one, other, misfit)


async def test_logprobs_equal_a_float32_forward_after_every_swap(rig: Rig) -> None:
    for step, folder in enumerate((rig.one, rig.other, rig.one)):
        await rig.engine.swap(folder, f"d-{step}")
        ids, logprobs, _, _ = sampled(await rig.engine.generate(PROMPT, f"d-{step}", 60, temperature=1.0))
        expected = forward_logprobs(folder, PROMPT, ids)
        assert max(abs(a - b) for a, b in zip(logprobs, expected, strict=True)) < 1e-3


async def test_a_prompt_hits_under_its_own_policy_only(rig: Rig) -> None:
    await rig.engine.swap(rig.one, "hit-1")
    assert sampled(await rig.engine.generate(PROMPT, "hit-1", 4))[2] == 0
    ids, _, cached, _ = sampled(await rig.engine.generate(PROMPT, "hit-1", 4, temperature=0.0))
    assert cached == 128
    await rig.engine.swap(rig.other, "hit-2")
    others, _, cached, _ = sampled(await rig.engine.generate(PROMPT, "hit-2", 4, temperature=0.0))
    assert cached == 0 and others != ids
    # Back on the first weights under a digest of their own, without a reset in between, the answer is the first one.
    await rig.engine.swap(rig.one, "hit-1")
    assert sampled(await rig.engine.generate(PROMPT, "hit-1", 4, temperature=0.0))[0] == ids


async def test_a_swap_ends_running_calls_with_their_output_and_refuses_the_old_digest(rig: Rig) -> None:
    await rig.engine.swap(rig.one, "a")
    calls = [asyncio.create_task(rig.engine.generate([*PROMPT, at], "a", 3000, temperature=1.0)) for at in range(6)]
    while (await rig.engine.control.look()).load.running < len(calls):
        pass
    assert await rig.engine.swap(rig.other, "b") == len(calls)
    for at, call in enumerate(calls):
        ids, logprobs, _, reason = sampled(await call)
        assert reason == "abort" and 0 < len(ids) < 3000
        expected = forward_logprobs(rig.one, [*PROMPT, at], ids)
        assert max(abs(a - b) for a, b in zip(logprobs, expected, strict=True)) < 1e-3
    refused = await rig.engine.generate(PROMPT, "a", 4)
    assert refused.status_code == 409 and refused.json()["policy_digest"] == "b"


async def test_weights_of_another_shape_are_refused_and_the_engine_lives_on(rig: Rig) -> None:
    await rig.engine.swap(rig.one, "fits")
    await rig.engine.control.close(wait_s=0.0)
    with pytest.raises(Refused, match="tie_word_embeddings"):
        await rig.engine.control.load(str(rig.misfit), "misfit")
    await rig.engine.swap(rig.one, "again")
    assert len(sampled(await rig.engine.generate(PROMPT, "again", 4))[0]) == 4


async def test_an_engine_killed_in_a_call_comes_back_closed_and_forgetful(rig: Rig) -> None:
    await rig.engine.swap(rig.one, "before")
    boot = (await rig.engine.control.look()).gate.boot_id
    call = asyncio.create_task(rig.engine.generate(PROMPT, "before", 3000))
    while not (await rig.engine.control.look()).load.running:
        pass
    rig.engine.process.kill()
    with pytest.raises(httpx.HTTPError):
        await call
    rig.engine.process.start()
    rig.engine.process.wait_healthy(f"{rig.engine.url}/health")
    gate = (await rig.engine.control.look()).gate
    assert gate.boot_id != boot and not gate.is_open and gate.policy_digest == ""
    await rig.engine.swap(rig.other, "after")
    ids, logprobs, _, _ = sampled(await rig.engine.generate(PROMPT, "after", 20))
    expected = forward_logprobs(rig.other, PROMPT, ids)
    assert max(abs(a - b) for a, b in zip(logprobs, expected, strict=True)) < 1e-3
