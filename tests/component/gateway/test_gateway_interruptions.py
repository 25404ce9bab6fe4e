"""Weight swaps, dying engines, leaving clients and retries: one call, one sample, no id lost."""

import asyncio
from pathlib import Path

import httpx
import openai
import pytest
from gateway_engine import END, Script, ScriptedEngine, raw_ids, says
from gateway_rig import Rig

from services.gateway.domain.tree import Span

ASK = [{"role": "user", "content": "hi"}]
URL = "/v1/chat/completions"


def body(**more: object) -> dict[str, object]:
    return {"model": "m", "messages": ASK, **more}


def headers(key: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}", **{name.replace("_", "-"): value for name, value in more.items()}}


@pytest.mark.parametrize("stream", [False, True])
async def test_swap_in_mid_call_goes_on_under_the_new_policy_with_a_span_each(
    rig: Rig, engine: ScriptedEngine, stream: bool
):
    key = await rig.episode()
    engine.scripts += [Script(raw_ids("abcdef"), abort_after=2), says("cd")]
    original = rig.routes.complete

    async def complete(ticket, served):
        rig.routes.step, rig.routes.digest = 1, "d1"
        await original(ticket, served)

    rig.routes.complete = complete  # type: ignore[method-assign]
    client = rig.openai(key)
    if stream:
        answer = await client.chat.completions.create(model="m", messages=ASK, stream=True)  # type: ignore[arg-type]
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in answer])
    else:
        text = (await client.chat.completions.create(model="m", messages=ASK)).choices[0].message.content or ""  # type: ignore[arg-type]
    assert text == "abcd"
    first, second = engine.generates
    assert second["token_ids"] == [*first["token_ids"], *raw_ids("ab")]
    assert second["sampling_params"]["max_tokens"] == first["sampling_params"]["max_tokens"] - 2
    assert (second["cache_salt"], engine.policies) == ("d1", ["d0", "d1"])
    turn = (await rig.tree()).nodes[-1]
    assert list(turn.token_ids) == [*raw_ids("abcd"), END]
    assert turn.sample is not None and turn.sample.spans == (Span(0, 2, 0, "d0"), Span(2, 5, 1, "d1"))
    assert [served.result for served in rig.routes.served] == ["aborted", "done"]


async def test_refused_by_the_gate_routes_again(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.scripts += [Script([], status=409), says("x")]
    answer = await rig.openai(key).chat.completions.create(model="m", messages=ASK)  # type: ignore[arg-type]
    assert answer.choices[0].message.content == "x"
    assert [served.result for served in rig.routes.served] == ["refused", "done"]


@pytest.mark.parametrize("stream", [False, True])
async def test_engine_that_dies_is_avoided_and_what_a_stream_brought_is_kept(tmp_path: Path, stream: bool):
    engines = [ScriptedEngine(), ScriptedEngine()]
    for each in engines:
        await each.start()
    rig = Rig(tmp_path, engines)
    await rig.start()
    key = await rig.episode()
    engines[0].scripts.append(Script(raw_ids("abcd"), cut=2))
    engines[1].scripts.append(says("cd" if stream else "abcd"))
    client = rig.openai(key)
    if stream:
        answer = await client.chat.completions.create(model="m", messages=ASK, stream=True)  # type: ignore[arg-type]
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in answer])
    else:
        text = (await client.chat.completions.create(model="m", messages=ASK)).choices[0].message.content or ""  # type: ignore[arg-type]
    assert text == "abcd"
    assert rig.routes.orders[1].avoid == ("w0",)
    assert list((await rig.tree()).nodes[-1].token_ids) == [*raw_ids("abcd"), END]
    await rig.stop()
    for each in engines:
        await each.stop()


async def test_no_engine_until_the_deadline_is_503_that_may_be_tried_again(tmp_path: Path, engine: ScriptedEngine):
    rig = Rig(tmp_path, [engine], call_timeout_s=0.3)
    await rig.start()
    key = await rig.episode()
    rig.routes.open.clear()
    async with httpx.AsyncClient() as client:
        answer = await client.post(rig.url + URL, json=body(), headers=headers(key))
    assert answer.status_code == 503 and answer.headers["x-should-retry"] == "true"
    assert answer.json()["error"]["code"] == "engine_unavailable"
    assert (await rig.tree()).nodes == []
    await rig.stop()


@pytest.mark.parametrize("stream", [False, True])
async def test_client_that_leaves_aborts_the_engine_once_and_the_turn_stays_as_truncated(
    rig: Rig, engine: ScriptedEngine, eventually, stream: bool
):
    key = await rig.episode()
    script = Script(raw_ids("abcdef"), gate_at=3)
    engine.scripts.append(script)
    leaving = asyncio.create_task(_post(rig, key, stream))
    await script.reached.wait()
    leaving.cancel()
    await eventually(lambda: not rig.sessions.peek("ep-1").live)  # type: ignore[union-attr]
    assert engine.aborted == [engine.generates[0]["request_id"]]
    turn = (await rig.tree()).nodes[-1]
    assert list(turn.token_ids) == raw_ids("abc") and turn.message.content == "abc"
    assert turn.sample is not None and turn.sample.finish_reason == "truncated"
    assert rig.routes.served[-1].result == "aborted"


async def _post(rig: Rig, key: str, stream: bool, **more: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=20) as client:
        return await client.post(rig.url + URL, json=body(stream=stream), headers=headers(key, **more))


@pytest.mark.parametrize("again", ["key", "retry header", "same digest"])
async def test_retry_after_the_client_left_takes_the_same_sample_up_where_it_stopped(
    rig: Rig, engine: ScriptedEngine, eventually, again: str
):
    key = await rig.episode()
    script = Script(raw_ids("abcdef"), gate_at=3)
    engine.scripts.append(script)
    mark = {"idempotency_key": "k"} if again == "key" else {}
    leaving = asyncio.create_task(_post(rig, key, False, **mark))
    await script.reached.wait()
    leaving.cancel()
    await eventually(lambda: not rig.sessions.peek("ep-1").live)  # type: ignore[union-attr]
    rig.routes.step, rig.routes.digest = 1, "d1"
    engine.scripts.append(says("def"))
    if again == "retry header":
        mark = {"x_stainless_retry_count": "1"}
    answer = await _post(rig, key, False, **mark)

    assert answer.json()["choices"][0]["message"]["content"] == "abcdef"
    tree = await rig.tree()
    samples = [node.sample for node in tree.nodes if node.sample]
    assert len(samples) == 1
    assert list(samples[0].token_ids) == [*raw_ids("abcdef"), END]
    assert samples[0].spans == (Span(0, 3, 0, "d0"), Span(3, 7, 1, "d1"))
    assert samples[0].finish_reason == "stop"


async def test_retry_while_the_first_is_under_way_joins_it(rig: Rig, engine: ScriptedEngine, eventually):
    key = await rig.episode()
    script = says("abc", gate_at=1)
    engine.scripts.append(script)
    first = asyncio.create_task(_post(rig, key, False, idempotency_key="k"))
    await script.reached.wait()
    second = asyncio.create_task(_post(rig, key, True, idempotency_key="k"))
    session = rig.sessions.peek("ep-1")
    assert session is not None
    await eventually(lambda: [live.clients for live in session.live.values()] == [2])
    first.cancel()
    await eventually(lambda: [live.clients for live in session.live.values()] == [1])
    script.gate.set()
    text = (await second).text
    assert engine.aborted == [] and len(engine.generates) == 1
    assert '"content":"abc"' in text and text.endswith("data: [DONE]\n\n")
    assert len([node for node in (await rig.tree()).nodes if node.sample]) == 1


async def test_retry_of_an_answered_call_replays_it(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.scripts.append(says("abc"))
    first = await _post(rig, key, False, idempotency_key="k")
    again = await _post(rig, key, False, idempotency_key="k")
    streamed = await _post(rig, key, True, idempotency_key="k")
    assert first.json()["choices"] == again.json()["choices"]
    assert first.json()["id"] == again.json()["id"]
    assert '"content":"abc"' in streamed.text and streamed.text.endswith("data: [DONE]\n\n")
    assert len(engine.generates) == 1
    other = httpx.AsyncClient()
    refused = await other.post(rig.url + URL, json=body(temperature=0.1), headers=headers(key, idempotency_key="k"))
    assert refused.status_code == 400 and "idempotency-key" in refused.json()["error"]["message"]
    await other.aclose()


async def test_equal_calls_in_parallel_or_in_a_row_are_two_samples(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.scripts += [says("one"), says("two"), says("three")]
    await asyncio.gather(_post(rig, key, False), _post(rig, key, False))
    await _post(rig, key, False)
    tree = await rig.tree()
    assert [node.parent_id for node in tree.nodes] == [-1, 0, 0, 0]
    assert {node.message.content for node in tree.nodes[1:]} == {"one", "two", "three"}


async def test_sdk_retries_after_a_broken_stream_leave_one_sample(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.scripts.append(says("abc"))
    engine.broken_derenders = 1
    answer = await rig.openai(key, retries=2).chat.completions.create(model="m", messages=ASK)  # type: ignore[arg-type]
    assert answer.choices[0].message.content == "abc"
    assert len([node for node in (await rig.tree()).nodes if node.sample]) == 1


async def test_calls_beyond_the_bound_are_sent_away(tmp_path: Path, engine: ScriptedEngine):
    rig = Rig(tmp_path, [engine], calls=1)
    await rig.start()
    key = await rig.episode()
    script = says("abc", gate_at=1)
    engine.scripts.append(script)
    first = asyncio.create_task(_post(rig, key, False))
    await script.reached.wait()
    with pytest.raises(openai.RateLimitError):
        await rig.openai(key).chat.completions.create(model="m", messages=ASK)  # type: ignore[arg-type]
    script.gate.set()
    assert (await first).status_code == 200
    await rig.stop()


async def test_a_silent_stream_is_kept_alive_by_comments(tmp_path: Path, engine: ScriptedEngine):
    rig = Rig(tmp_path, [engine], keep_alive_s=0.05)
    await rig.start()
    key = await rig.episode()
    script = says("abc", gate_at=0)
    engine.scripts.append(script)
    async with httpx.AsyncClient() as client:
        async with client.stream("POST", rig.url + URL, json=body(stream=True), headers=headers(key)) as answer:
            seen = ""
            async for text in answer.aiter_text():
                seen += text
                if ": still" in seen:
                    script.gate.set()
    assert "[DONE]" in seen
    await rig.stop()
