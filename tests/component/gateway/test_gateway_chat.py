"""OpenAI Chat Completions with the real SDK: what a client sees, and what is recorded."""

import json

import httpx
import openai
import pytest
from gateway_engine import END, Script, ScriptedEngine, raw_ids, says
from gateway_rig import DIGEST, Rig, submission

from services.gateway.domain.tree import Span

TOOLS = [{"type": "function", "function": {"name": "calc", "parameters": {"type": "object", "properties": {}}}}]
ASK = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
CALL_TEXT = 'well <tool_call>{"name": "calc", "arguments": {"a": 1}}</tool_call>'


async def test_unary_answer_is_recorded_with_ids_logprobs_span_and_the_runs_sampling(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.scripts.append(says("hello", logprobs=[-0.1, -0.2, -0.3, -0.4, -0.5, -0.6]))
    answer = await rig.openai(key).chat.completions.create(model="anything", messages=ASK)  # type: ignore[arg-type]

    assert answer.choices[0].message.content == "hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None and answer.usage.completion_tokens == 6
    tree = await rig.tree()
    system, user, turn = tree.nodes
    assert (system.token_ids, user.parent_id, turn.parent_id) == ((), 0, 1)
    assert list(user.token_ids) == engine.generates[0]["token_ids"]
    assert turn.sample is not None
    assert list(turn.token_ids) == [*raw_ids("hello"), END]
    assert turn.sample.logprobs == pytest.approx((-0.1, -0.2, -0.3, -0.4, -0.5, -0.6))
    assert turn.sample.spans == (Span(0, 6, 0, DIGEST),)
    assert (turn.sample.temperature, turn.sample.top_p) == (0.7, 0.9)
    assert engine.generates[0]["sampling_params"]["temperature"] == 0.7
    assert engine.generates[0]["sampling_params"]["logprobs"] == 0
    assert engine.generates[0]["cache_salt"] == DIGEST and engine.policies == [DIGEST]
    served = rig.routes.served[0]
    assert (served.result, served.cached_tokens, served.new_tokens) == ("done", 3, 6)


async def test_clients_sampling_wins_and_is_recorded(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.scripts.append(says("x"))
    await rig.openai(key).chat.completions.create(
        model="m",
        messages=ASK,
        temperature=0.2,
        max_completion_tokens=9,  # type: ignore[arg-type]
    )
    sampling = engine.generates[0]["sampling_params"]
    assert (sampling["temperature"], sampling["top_p"], sampling["max_tokens"]) == (0.2, 0.9, 9)
    sample = (await rig.tree()).nodes[-1].sample
    assert sample is not None and (sample.temperature, sample.top_p) == (0.2, 0.9)


async def test_stream_gives_role_text_finish_and_done_and_the_same_record(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.scripts.append(says("hello"))
    body = {"model": "m", "messages": ASK, "stream": True, "stream_options": {"include_usage": True}}
    async with httpx.AsyncClient() as client:
        answer = await client.post(
            f"{rig.url}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}
        )
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    events = [json.loads(line) for line in lines[:-1]]
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events if e["choices"]) == "hello"
    assert [e["choices"][0]["finish_reason"] for e in events if e["choices"]][-1] == "stop"
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 6
    assert list((await rig.tree()).nodes[-1].token_ids) == [*raw_ids("hello"), END]


async def test_streamed_tool_call_has_index_id_name_first_and_no_id_is_lost(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.scripts.append(says(CALL_TEXT))
    stream = await rig.openai(key).chat.completions.create(
        model="m",
        messages=ASK,
        tools=TOOLS,
        stream=True,  # type: ignore[arg-type]
    )
    chunks = [chunk async for chunk in stream]
    parts = [part for chunk in chunks for part in (chunk.choices[0].delta.tool_calls or [])]
    assert (parts[0].index, parts[0].type, parts[0].function.name) == (0, "function", "calc")  # type: ignore[union-attr]
    assert parts[0].id
    assert json.loads("".join(part.function.arguments or "" for part in parts)) == {"a": 1}  # type: ignore[union-attr]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    # The parser swallows the markup, the record does not.
    turn = (await rig.tree()).nodes[-1]
    assert list(turn.token_ids) == [*raw_ids(CALL_TEXT), END]
    assert turn.message.content == "well " and turn.message.tool_calls[0].name == "calc"


async def test_unary_tool_call_then_its_result_continues_the_sampled_ids(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.scripts += [says(CALL_TEXT), says("it is 3")]
    client = rig.openai(key)
    first = await client.chat.completions.create(model="m", messages=ASK, tools=TOOLS)  # type: ignore[arg-type]
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls" and message.tool_calls
    # As SDK users send it back: every null and extra field included.
    replayed = {**message.model_dump(), "provider_specific": {"x": 1}}
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "3"}
    await client.chat.completions.create(model="m", messages=[*ASK, replayed, result], tools=TOOLS)  # type: ignore[arg-type]

    first_prompt, second_prompt = (body["token_ids"] for body in engine.generates)
    sampled = [*raw_ids(CALL_TEXT), END]
    assert second_prompt[: len(first_prompt) + len(sampled)] == [*first_prompt, *sampled]
    tree = await rig.tree()
    assert [node.message.role for node in tree.nodes] == ["system", "user", "assistant", "tool", "assistant"]
    assert tree.path_ids(3) == second_prompt


async def test_models_and_foreign_fields_are_answered(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    assert [model.id async for model in rig.openai(key).models.list()] == ["policy"]
    engine.scripts.append(says("x"))
    await rig.openai(key).chat.completions.create(
        model="gpt-4o-mini",
        messages=ASK,
        extra_body={"thinking": {"type": "adaptive"}, "metadata": {}},  # type: ignore[arg-type]
    )
    assert "thinking" not in engine.renders[0]


async def test_bad_keys_bodies_and_sizes_are_refused_in_openais_words(rig: Rig):
    key = await rig.episode()
    with pytest.raises(openai.AuthenticationError) as refused:
        await rig.openai("nonsense").chat.completions.create(model="m", messages=ASK)  # type: ignore[arg-type]
    assert refused.value.code == "invalid_api_key"
    with pytest.raises(openai.BadRequestError, match=r"messages\[0\]\.role: given 'wizard'"):
        await rig.openai(key).chat.completions.create(model="m", messages=[{"role": "wizard"}])  # type: ignore[list-item]
    with pytest.raises(openai.BadRequestError, match="n: given 3"):
        await rig.openai(key).chat.completions.create(model="m", messages=ASK, n=3)  # type: ignore[arg-type]
    with pytest.raises(openai.BadRequestError, match="image_url"):
        part = {"type": "image_url", "image_url": {"url": "x"}}
        await rig.openai(key).chat.completions.create(model="m", messages=[{"role": "user", "content": [part]}])  # type: ignore[list-item]
    huge = [{"role": "user", "content": "x" * (1 << 20)}]
    with pytest.raises(openai.APIStatusError) as large:
        await rig.openai(key).chat.completions.create(model="m", messages=huge)  # type: ignore[arg-type]
    assert large.value.status_code == 413
    assert (await rig.tree()).nodes == []


@pytest.mark.parametrize(
    ("fields", "param", "says_what"),
    [
        ({"temperature": 3}, "temperature", "less than or equal to 2"),
        ({"seed": "x"}, "seed", "integer"),
        ({"response_format": "json"}, "response_format", "dictionary"),
        ({"tools": ["calc"]}, "tools[0].type", "'function'"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].type", "'function'"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name", "name"),
        ({"messages": [{"role": "user", "content": "\ud800 x"}]}, "messages[0].content", "UTF-8"),
    ],
)
async def test_what_an_engine_would_stumble_over_is_refused_by_name(rig: Rig, fields: dict, param: str, says_what: str):
    key = await rig.episode()
    body = json.dumps({"model": "m", "messages": ASK, **fields})
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}) as client:
        answer = await client.post(f"{rig.url}/v1/chat/completions", content=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert says_what in error["message"] and "\n" not in error["message"]


async def test_a_body_nested_without_end_is_no_json_object(rig: Rig):
    key = await rig.episode()
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}) as client:
        answer = await client.post(f"{rig.url}/v1/chat/completions", content="[" * 100_000)
    assert answer.status_code == 400 and "a JSON object" in answer.json()["error"]["message"]


async def test_what_is_not_served_is_said_as_the_sdk_reads_it(rig: Rig):
    client = rig.openai(await rig.episode())
    assert (await client.models.retrieve("org/any")).id == "org/any"
    with pytest.raises(openai.NotFoundError, match="POST /v1/embeddings: not served here") as missing:
        await client.embeddings.create(model="m", input="x")
    assert missing.value.code == "unknown_url"
    async with httpx.AsyncClient() as plain:
        answer = await plain.get(f"{rig.url}/v1/chat/completions")
    assert answer.status_code == 405 and answer.json()["error"]["code"] == "unknown_url"


async def test_a_tool_without_parameters_takes_none(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.scripts.append(says("x"))
    bare = {"type": "function", "function": {"name": "now"}}
    await rig.openai(key).chat.completions.create(model="m", messages=ASK, tools=[bare])  # type: ignore[arg-type,list-item]
    assert engine.renders[0]["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {}}


async def test_a_streamed_answer_sent_back_continues_its_turn(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.scripts += [says("hello"), says("there")]
    client = rig.openai(key)
    stream = await client.chat.completions.create(model="m", messages=ASK, stream=True)  # type: ignore[arg-type]
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert text == "hello"
    more = [*ASK, {"role": "assistant", "content": text}, {"role": "user", "content": "and?"}]
    await client.chat.completions.create(model="m", messages=more)  # type: ignore[arg-type]
    tree = await rig.tree()
    assert tree.nodes[2].message.content == "hello"
    assert [node.parent_id for node in tree.nodes] == [-1, 0, 1, 2, 3]


async def test_a_prompt_beyond_the_model_is_a_context_overflow(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    # "user", newline, the text, start, end, newline, and "assistant", newline after its start: 19 ids and the text.
    engine.room_tokens = 60
    for length in (70, 41):
        # Too long for render itself; and exactly full: 60 ids leave room for no new one.
        with pytest.raises(openai.BadRequestError) as overflow:
            await rig.openai(key).chat.completions.create(
                model="m", messages=[{"role": "user", "content": "x" * length}]
            )
        assert overflow.value.code == "context_length_exceeded"
    engine.scripts.append(says("y"))
    await rig.openai(key).chat.completions.create(model="m", messages=[{"role": "user", "content": "x" * 40}])
    assert engine.generates[0]["sampling_params"]["max_tokens"] == 1


async def test_two_episodes_keys_write_into_their_own_trees(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    await rig.desk.submit(submission("ep-2"))
    other = rig.credentials.issue("ep-2", "r1").api_key
    engine.scripts += [says("one"), says("two")]
    await rig.openai(key).chat.completions.create(model="m", messages=ASK)  # type: ignore[arg-type]
    await rig.openai(other).chat.completions.create(model="m", messages=ASK)  # type: ignore[arg-type]
    assert [(await rig.tree(name)).nodes[-1].message.content for name in ("ep-1", "ep-2")] == ["one", "two"]


async def test_stop_string_is_cut_off_the_text_but_not_the_ids(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.scripts.append(Script(raw_ids("done###"), stop_reason="###"))
    stream = await rig.openai(key).chat.completions.create(
        model="m",
        messages=ASK,
        stop=["###"],
        stream=True,  # type: ignore[arg-type]
    )
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert text == "done"
    turn = (await rig.tree()).nodes[-1]
    assert list(turn.token_ids) == raw_ids("done###") and turn.sample is not None and not turn.sample.ended
