"""The gateway against a real vLLM on the CPU, with the example model: ids, swaps, leaving clients, overflow."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx
import openai
import pytest
from brokers import free_port
from gateway_rig import Rig

from services.gateway.domain.tree import MessageTree

MODEL = Path("examples/models/tiny-qwen3")
TOKEN = "engine-token"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "python",
            "description": "Run Python.",
            "parameters": {"type": "object", "properties": {"code": {"type": "string"}}},
        },
    }
]
ASK = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "What is 12 + 30?"}]
pytestmark = pytest.mark.engine


class RealEngine:
    """One engine process; the test holds its gate."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, headers={"authorization": f"Bearer {TOKEN}"}, timeout=30)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FORGERL_")}
        own = {
            "FORGERL_ENGINE_MODEL": str(MODEL),
            "FORGERL_ENGINE_PORT": str(self.port),
            "FORGERL_ENGINE_KV_POOL_PORT": "0",
            "FORGERL_ENGINE_KV_EVENTS_PORT": "0",
            "FORGERL_DATA_DIR": str(folder),
            "FORGERL_TOKEN": TOKEN,
            "FORGERL_SECRET": "s",
        }
        self.log = folder / "engine.txt"
        with self.log.open("wb") as log:
            command = [sys.executable, "-m", "services.inference.engine"]
            self.process = subprocess.Popen(
                command, env={**kept, **own}, stdout=log, stderr=log, start_new_session=True
            )

    def healthy(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        try:
            return self.client.get("/health").status_code == 200
        except httpx.HTTPError:
            return False

    def gate(self, **order: Any) -> None:
        assert self.client.post("/forgerl/gate", json=order).status_code == 200

    def resume(self) -> None:
        assert self.client.post("/resume").status_code == 200

    def text(self, ids: list[int]) -> str:
        answer = self.client.post("/detokenize", json={"model": "policy", "tokens": ids}).json()
        return str(answer["prompt"])

    def stop(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEngine]:
    started = RealEngine(tmp_path_factory.mktemp("engine"))

    until = monotonic() + 240
    try:
        while not started.healthy():
            assert monotonic() < until, started.log.read_text()[-3000:]
            sleep(0.5)
        started.gate(open=True, policy_digest="d0", policy_step=0)
        yield started
    finally:
        started.stop()


@pytest.fixture
async def gateway(tmp_path: Path, real: RealEngine) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path, [real])  # type: ignore[list-item]
    await rig.start()
    yield rig
    await rig.stop()


def prompts(tree: MessageTree) -> list[list[int]]:
    return [tree.path_ids(node.parent_id) for node in tree.nodes if node.sample]


async def test_unary_and_streamed_answers_hold_every_sampled_id(gateway: Rig, real: RealEngine):
    client = gateway.openai(await gateway.episode())
    unary = await client.chat.completions.create(model="m", messages=ASK, tools=TOOLS, seed=1)  # type: ignore[arg-type]
    stream = await client.chat.completions.create(
        model="m",
        messages=ASK,
        tools=TOOLS,
        seed=2,
        stream=True,
        stream_options={"include_usage": True},  # type: ignore[arg-type]
    )
    chunks = [chunk async for chunk in stream]
    tree = await gateway.tree()
    turns = [node for node in tree.nodes if node.sample]
    assert unary.usage and unary.usage.completion_tokens == len(turns[0].token_ids)
    assert chunks[-1].usage and chunks[-1].usage.completion_tokens == len(turns[1].token_ids)
    assert chunks[-2].choices[0].finish_reason in ("stop", "length", "tool_calls")
    content = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert content == turns[1].message.content
    for turn in turns:
        assert turn.sample is not None
        assert len(turn.sample.logprobs) == len(turn.token_ids) and all(value <= 0 for value in turn.sample.logprobs)
        assert turn.sample.spans[-1].end == len(turn.token_ids)
        if turn.message.content:
            assert turn.message.content.strip() in real.text(list(turn.token_ids))
    assert "What is 12 + 30?" in real.text(prompts(tree)[0])


async def test_a_stream_says_what_the_whole_answer_says(gateway: Rig):
    client = gateway.openai(await gateway.episode())
    for seed in range(4):
        asked: dict[str, Any] = {"model": "m", "messages": ASK, "seed": seed, "max_tokens": 200}
        whole = (await client.chat.completions.create(**asked)).choices[0]
        stream = await client.chat.completions.create(**asked, stream=True)
        content = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert whole.finish_reason == "stop", "an answer that the model did not end shows nothing here"
        assert content.strip() == (whole.message.content or "").strip() and "<|im_end|>" not in content


async def test_conversation_with_a_tool_keeps_its_ids_and_shows_each_message_once(gateway: Rig, real: RealEngine):
    client = gateway.openai(await gateway.episode())
    messages: list[dict[str, Any]] = list(ASK)
    for number in range(4):
        answer = await client.chat.completions.create(
            model="m",
            messages=messages,
            tools=TOOLS,
            seed=number,
            max_tokens=24 + 8 * number,  # type: ignore[arg-type]
        )
        message = answer.choices[0].message
        messages.append(message.model_dump())
        for call in message.tool_calls or []:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"RESULT{number}"})
        messages.append({"role": "user", "content": f"QUESTION{number}"})
    tree = await gateway.tree()
    assert len(tree.path(len(tree.nodes) - 1)) == len(tree.nodes), "the conversation fell apart into branches"
    last = prompts(tree)[-1]
    for node in tree.nodes:
        if node.sample and node.node_id != len(tree.nodes) - 1:
            before = tree.path_ids(node.node_id)
            assert last[: len(before)] == before
    shown = real.text(last)
    assert [shown.count(f"QUESTION{number}") for number in range(3)] == [1, 1, 1]
    assert shown.count("<|im_start|>assistant") == 4


async def test_client_that_leaves_leaves_a_truncated_turn_that_a_retry_takes_up(gateway: Rig, eventually):
    key = await gateway.episode()
    body = {"model": "m", "messages": ASK, "stream": True, "ignore_eos": True, "max_tokens": 400, "min_tokens": 400}
    headers = {"authorization": f"Bearer {key}", "idempotency-key": "k"}
    async with httpx.AsyncClient(timeout=60) as client:
        async with client.stream("POST", f"{gateway.url}/v1/chat/completions", json=body, headers=headers) as answer:
            async for line in answer.aiter_lines():
                if '"reasoning_content"' in line or ('"content"' in line and '"content":""' not in line):
                    break
    session = gateway.sessions.peek("ep-1")
    assert session is not None
    await eventually(lambda: not session.live)
    cut = (await gateway.tree()).nodes[-1]
    assert cut.sample is not None and cut.sample.finish_reason == "truncated" and 0 < len(cut.token_ids) < 400
    async with httpx.AsyncClient(timeout=60) as client:
        whole = {**body, "stream": False}
        answer = await client.post(f"{gateway.url}/v1/chat/completions", json=whole, headers=headers)
    assert answer.json()["usage"]["completion_tokens"] == 400
    again = (await gateway.tree()).nodes[-1]
    assert again.node_id == cut.node_id and again.token_ids[: len(cut.token_ids)] == cut.token_ids


async def test_swap_in_mid_call_is_one_answer_with_two_spans(gateway: Rig, real: RealEngine):
    key = await gateway.episode()
    client = gateway.openai(key)
    stream = await client.chat.completions.create(
        model="m",
        messages=ASK,
        stream=True,
        max_tokens=400,
        extra_body={"min_tokens": 400},  # type: ignore[arg-type]
    )
    swapped = False
    async for chunk in stream:
        delta = chunk.choices[0].delta.model_dump() if chunk.choices else {}
        if not swapped and (delta.get("content") or delta.get("reasoning_content")):
            swapped = True
            gateway.routes.open.clear()
            await asyncio.to_thread(real.gate, open=False, drain="abort")
            gateway.routes.step, gateway.routes.digest = 1, "d1"
            await asyncio.to_thread(real.resume)
            await asyncio.to_thread(real.gate, open=True, policy_digest="d1", policy_step=1)
            gateway.routes.open.set()
    sample = (await gateway.tree()).nodes[-1].sample
    assert sample is not None and len(sample.token_ids) == 400
    assert [(span.policy_step, span.policy_digest) for span in sample.spans] == [(0, "d0"), (1, "d1")]
    await asyncio.to_thread(real.gate, open=True, policy_digest="d0", policy_step=0)


async def test_prompt_beyond_the_model_is_a_context_overflow(gateway: Rig):
    client = gateway.openai(await gateway.episode())
    for length in (3_000, 60_000):
        with pytest.raises(openai.BadRequestError) as overflow:
            await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": json.dumps(list(range(length)))}]
            )
        assert overflow.value.code == "context_length_exceeded"
