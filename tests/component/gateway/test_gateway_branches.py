"""The message tree under clients that rewrite, strip, interleave and insert: branches, never errors or wrong ids."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gateway_engine import END, MERGES, START, Script, ScriptedEngine, merged_ids, raw_ids, says
from gateway_rig import Rig

from services.contract import trajectory as contract
from services.gateway.domain.sealing import to_trajectory

USER = {"role": "user", "content": "go"}


@pytest.fixture
async def stripping(tmp_path: Path) -> AsyncIterator[tuple[Rig, ScriptedEngine]]:
    """An engine whose template drops thinking from history."""
    engine = ScriptedEngine(strip_think=True)
    await engine.start()
    rig = Rig(tmp_path, [engine])
    await rig.start()
    yield rig, engine
    await rig.stop()
    await engine.stop()


async def say(rig: Rig, key: str, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    answer = await rig.openai(key).chat.completions.create(model="m", messages=messages, **more)  # type: ignore[arg-type]
    return answer.choices[0].message.model_dump()


async def test_sampled_ids_that_would_render_otherwise_are_kept_and_only_the_new_part_is_added(
    rig: Rig, engine: ScriptedEngine
):
    key = await rig.episode()
    # "thab" is sampled as four ids; rendering it makes two merges.
    engine.scripts += [says("thab"), says("ok")]
    first = await say(rig, key, [USER])
    await say(rig, key, [USER, first, {"role": "user", "content": "more"}])
    prompt = engine.generates[1]["token_ids"]
    sampled = [*raw_ids("thab"), END]
    expected = [
        *engine.generates[0]["token_ids"],
        *sampled,
        *merged_ids("\n"),
        *[START, *merged_ids("user\nmore"), END, *merged_ids("\n")],
        *[START, *merged_ids("assistant\n")],
    ]
    assert prompt == expected
    assert not set(MERGES.values()) & set(prompt)


async def test_thinking_that_the_template_strips_stays_in_the_chain_and_appears_once(stripping):
    rig, engine = stripping
    key = await rig.episode()
    engine.scripts += [says("<think>MARK</think>yes"), says("ok")]
    first = await say(rig, key, [USER])
    assert first["reasoning_content"] == "MARK" and first["content"] == "yes"
    dropped = {"role": "assistant", "content": "yes"}
    await say(rig, key, [USER, dropped, {"role": "user", "content": "more"}])
    prompt = engine.generates[1]["token_ids"]
    text = "".join(chr(token - 100) for token in prompt if token >= 100 and token < 5000)
    assert text.count("MARK") == 1 and text.count("yes") == 1
    tree = await rig.tree()
    assert [node.parent_id for node in tree.nodes] == [-1, 0, 1, 2]


async def test_turn_cut_off_by_length_is_closed_by_the_template(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.scripts += [Script(raw_ids("thab"), finish="length"), says("ok")]
    first = await say(rig, key, [USER])
    await say(rig, key, [USER, first, {"role": "user", "content": "on"}])
    prompt = engine.generates[1]["token_ids"]
    before = [*engine.generates[0]["token_ids"], *raw_ids("thab")]
    assert prompt[: len(before)] == before
    assert prompt[len(before)] == END
    assert (await rig.tree()).nodes[2].parent_id == 1


async def test_unprovable_prefix_opens_a_branch_that_is_rendered_in_full(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.scripts += [says("thab"), says("ok")]
    first = await say(rig, key, [USER])
    # A template that closes turns by another id than the engine samples can't be bridged.
    engine.template = _closing_by(7, engine.template)  # type: ignore[method-assign]
    await say(rig, key, [USER, first, {"role": "user", "content": "more"}])
    full = next(render for render in reversed(engine.renders) if render["add_generation_prompt"])
    assert engine.generates[1]["token_ids"] == engine.template(full)
    tree = await rig.tree()
    assert [(node.parent_id, node.sample is not None) for node in tree.nodes] == [
        (-1, False),
        (0, True),
        (-1, False),
        (2, False),
        (3, False),
        (4, True),
    ]


def _closing_by(token: int, template):
    return lambda body: [token if each == END else each for each in template(body)]


async def test_two_agents_in_one_episode_keep_two_chains(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.scripts += [says(text) for text in ("A1", "B1", "A2", "B2")]
    a: list[dict[str, Any]] = [{"role": "user", "content": "agent a"}]
    b: list[dict[str, Any]] = [{"role": "user", "content": "agent b"}]
    for chain in (a, b, a, b):
        chain.append(await say(rig, key, chain))
        chain.append({"role": "user", "content": "next"})
    tree = await rig.tree()
    trajectory = to_trajectory(tree, "ep-1", "r1")
    texts = [[tree.nodes[i].message.content for i in branch] for branch in contract.training_branches(trajectory)]
    assert texts == [["agent a", "A1", "next", "A2"], ["agent b", "B1", "next", "B2"]]


async def test_history_rewrite_is_a_branch_and_the_old_chain_can_still_go_on(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.scripts += [says(text) for text in ("one", "two", "three")]
    first = await say(rig, key, [USER])
    await say(rig, key, [{"role": "user", "content": "summary: one"}])
    await say(rig, key, [USER, first, {"role": "user", "content": "back"}])
    tree = await rig.tree()
    assert [node.parent_id for node in tree.nodes] == [-1, 0, -1, 2, 1, 4]


async def test_system_message_in_the_middle_keeps_its_place_and_the_messages_before_it(
    rig: Rig, engine: ScriptedEngine
):
    key = await rig.episode()
    engine.scripts += [says(text) for text in ("a1", "a2", "a3", "a4")]
    chat: list[dict[str, Any]] = [{"role": "system", "content": "s"}, USER]
    for _ in range(3):
        chat.append(await say(rig, key, chat))
        chat.append({"role": "user", "content": "more"})
    inserted = [*chat[:5], {"role": "system", "content": "note"}, *chat[5:]]
    await say(rig, key, inserted)
    tree = await rig.tree()
    path = [node.message.content for node in tree.path(len(tree.nodes) - 1)]
    assert path == ["s", "go", "a1", "more", "a2", "note", "more", "a3", "more", "a4"]
    # The five messages before it are the old nodes.
    assert [node.node_id for node in tree.path(len(tree.nodes) - 1)][:5] == [0, 1, 2, 3, 4]


async def test_requests_that_differ_in_a_billing_line_only_are_one_chain(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.scripts += [says("one"), says("two")]
    first_system = {"role": "system", "content": "x-anthropic-billing-header: cc=1\nbe brief"}
    second_system = {"role": "system", "content": "x-anthropic-billing-header: cc=2\nbe brief"}
    first = await say(rig, key, [first_system, USER])
    await say(rig, key, [second_system, USER, first, {"role": "user", "content": "more"}])
    tree = await rig.tree()
    assert [node.parent_id for node in tree.nodes] == [-1, 0, 1, 2, 3]


async def test_other_tools_share_nothing(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.scripts += [says("one"), says("two")]
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    first = await say(rig, key, [USER])
    await say(rig, key, [USER, first, {"role": "user", "content": "more"}], tools=[tool])
    tree = await rig.tree()
    assert [node.parent_id for node in tree.nodes] == [-1, 0, -1, 2, 3, 4]
    assert [node.sample is not None for node in tree.nodes] == [False, True, False, False, False, True]


async def test_a_later_attempt_starts_over_and_marks_the_lost_one(rig: Rig, engine: ScriptedEngine):
    key = await rig.episode()
    engine.scripts += [says("lost"), says("kept")]
    await (
        rig.openai(key)
        .with_options(default_headers={"x-forgerl-attempt": "1"})
        .chat.completions.create(model="m", messages=[USER])
    )  # type: ignore[list-item]
    client = rig.openai(key).with_options(default_headers={"x-forgerl-attempt": "2"})
    await client.chat.completions.create(model="m", messages=[USER])  # type: ignore[list-item]
    tree = await rig.tree()
    assert [(node.message.content, tree.is_infra(node)) for node in tree.nodes[1:]] == [("lost", True), ("kept", False)]
    trajectory = to_trajectory(tree, "ep-1", "r1")
    assert contract.training_branches(trajectory) == [[0, 2]]
