"""A real vLLM that speculates with a policy's draft head: what it samples is what it would sample without."""

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from engine_rig import Engine, forward_logprobs, make_model, running_engine, running_pool, sampled
from prometheus_client.parser import text_string_to_metric_families
from transformers import Qwen3ForCausalLM

from services.trainer.adapters.draft_training import DraftSettings, DraftTraining
from services.trainer.adapters.model_folder import weights_digest
from services.trainer.ranks.alone import Alone
from services.trainer.tree.forest import build_forest
from services.trainer.tree.plan import plan_attention
from services.trainer.tree.scoring import WholeForest, hidden_states, on_trees

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]
PROMPT = [(37 * at) % 250 for at in range(150)]
# 99.9 % of chi-square with 19 degrees of freedom lies below.
CHI_SQUARE_19 = 43.8


@dataclass(frozen=True, slots=True)
class Rig:
    engine: Engine
    one: Path
    other: Path
    bare: Path


@pytest.fixture(scope="module", params=["untied", "tied"])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp(request.param)
    bare, one, other = (
        make_model(folder / name, tied=request.param == "tied", seed=seed)
        for name, seed in (("bare", 0), ("one", 0), ("other", 1))
    )
    for policy in (one, other):
        add_head(policy)
    with running_pool(folder) as (_, port, _), running_engine(folder, bare, port, draft_tokens=2) as engine:
        yield Rig(engine, one, other, bare)


def add_head(folder: Path) -> None:
    """A head that guesses well enough to be accepted now and then."""
    policy = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    training = DraftTraining(policy, DraftSettings(top_k=64, learning_rate=3e-3, max_grad_norm=1.0), Alone())
    rng = np.random.default_rng(0)
    for _ in range(40):
        forest = build_forest([rng.integers(0, 256, 64) for _ in range(8)])
        with torch.no_grad(), on_trees(policy):
            hidden_SE = hidden_states(policy, forest, WholeForest(plan_attention(forest)))
        training.beside(hidden_SE, forest, np.arange(len(forest.token_ids_S))).backward()
        training.apply()
    training.publish(folder, weights_digest(folder))


async def swap(rig: Rig, folder: Path) -> str:
    digest = weights_digest(folder)
    await rig.engine.swap(folder, digest)
    return digest


async def drafts(engine: Engine) -> tuple[float, float]:
    """Verifications so far, and accepted guesses."""
    async with httpx.AsyncClient(timeout=30.0) as http:
        text = (await http.get(f"{engine.url}/metrics", headers={"authorization": "Bearer test-token"})).text
    found = {s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples}
    return found["vllm:spec_decode_num_drafts_total"], found["vllm:spec_decode_num_accepted_tokens_total"]


def greedy(folder: Path, prompt: Sequence[int], tokens: int) -> list[int]:
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(tokens):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt) :]


async def test_greedy_output_is_the_same_with_and_without_a_head_before_and_after_a_swap(rig: Rig) -> None:
    for folder, speculates in ((rig.one, True), (rig.other, True), (rig.bare, False), (rig.one, True)):
        digest = await swap(rig, folder)
        before, _ = await drafts(rig.engine)
        ids, _, _, _ = sampled(await rig.engine.generate(PROMPT, digest, 40, temperature=0.0))
        assert ids == greedy(folder, PROMPT, 40)
        assert ((await drafts(rig.engine))[0] > before) is speculates


@pytest.mark.parametrize("temperature", [1.0, 0.5])
async def test_tokens_come_from_the_policy_and_their_logprobs_too(rig: Rig, temperature: float) -> None:
    digest = await swap(rig, rig.one)
    before = await drafts(rig.engine)
    model = Qwen3ForCausalLM.from_pretrained(rig.one, dtype=torch.float32)
    places: list[float] = []
    rng = np.random.default_rng(1)
    for at in range(40):
        prompt = [*PROMPT[:40], at]
        ids, logprobs, _, _ = sampled(await rig.engine.generate(prompt, digest, 60, temperature=temperature))
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1] / temperature
        table = torch.log_softmax(logits, dim=-1)
        expected = table.gather(1, torch.tensor(ids)[:, None])[:, 0]
        assert max(abs(a - b) for a, b in zip(logprobs, expected.tolist(), strict=True)) < 1e-3
        places += uniform_places(table.exp().numpy(), ids, rng)
    verified, accepted = ((a - b) for a, b in zip(await drafts(rig.engine), before, strict=True))
    assert verified > 500 and accepted > 50
    counts = np.histogram(places, bins=20, range=(0, 1))[0]
    expected_count = len(places) / 20
    assert ((counts - expected_count) ** 2 / expected_count).sum() < CHI_SQUARE_19


def uniform_places(table_TV: Any, ids: Sequence[int], rng: np.random.Generator) -> list[float]:
    """Where in its distribution, likeliest tokens first, each id lies: uniform in [0, 1] if they were drawn from it."""
    places: list[float] = []
    for row, token in zip(table_TV, ids, strict=True):
        order = np.argsort(-row)
        rank = int(np.flatnonzero(order == token)[0])
        places.append(float(row[order[:rank]].sum() + rng.uniform() * row[token]))
    return places


async def test_a_head_of_another_policy_is_not_used(rig: Rig, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    shutil.copytree(rig.one, mixed)
    shutil.copytree(rig.other / "draft", mixed / "draft", dirs_exist_ok=True)
    digest = await swap(rig, mixed)
    before, _ = await drafts(rig.engine)
    ids, logprobs, _, _ = sampled(await rig.engine.generate(PROMPT, digest, 20, temperature=1.0))
    assert (await drafts(rig.engine))[0] == before
    expected = forward_logprobs(rig.one, PROMPT, ids)
    assert max(abs(a - b) for a, b in zip(logprobs, expected, strict=True)) < 1e-3


async def test_kv_comes_back_from_the_pool_while_it_speculates(rig: Rig) -> None:
    prompt = [(41 * at) % 250 for at in range(600)]
    digest = await swap(rig, rig.other)
    first = sampled(await rig.engine.generate(prompt, digest, 30, temperature=0.0))
    await swap(rig, rig.one)
    await swap(rig, rig.other)
    again = sampled(await rig.engine.generate(prompt, digest, 30, temperature=0.0))
    assert again[2] >= 512 and again[0] == first[0]
    assert max(abs(a - b) for a, b in zip(again[1], first[1], strict=True)) < 1e-3


async def test_a_swap_ends_speculating_calls_with_output_of_the_old_policy(rig: Rig) -> None:
    digest = await swap(rig, rig.one)
    calls = [asyncio.create_task(rig.engine.generate([*PROMPT, at], digest, 3000, temperature=1.0)) for at in range(6)]
    while (await rig.engine.control.look()).load.running < len(calls):
        pass
    newer = await swap(rig, rig.other)
    for at, call in enumerate(calls):
        ids, logprobs, _, reason = sampled(await call)
        assert reason == "abort" and 0 < len(ids) == len(logprobs) < 3000
        expected = forward_logprobs(rig.one, [*PROMPT, at], ids)
        assert max(abs(a - b) for a, b in zip(logprobs, expected, strict=True)) < 1e-3
    ids, _, _, _ = sampled(await rig.engine.generate(PROMPT, newer, 20, temperature=0.0))
    assert ids == greedy(rig.other, PROMPT, 20)
