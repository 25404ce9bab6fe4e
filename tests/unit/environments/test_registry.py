"""The registry finds every environment, makes each once, and names what is allowed."""

import pytest

from services.environments.interface import MAX_PAYLOAD_BYTES, InvalidTask, Task, UnknownEnvironment, pack
from services.environments.registry import Catalogue, environments
from services.environments.tool import ToolEnvironment


def test_built_in_names() -> None:
    assert {"reasoning", "tool", "qa"} <= set(environments())


def test_unknown_name_lists_the_allowed_ones() -> None:
    with pytest.raises(UnknownEnvironment, match="'maths' given, allowed: qa, reasoning, tool"):
        environments()["maths"]


def test_made_once_and_only_when_asked_for() -> None:
    made: list[str] = []

    def maker() -> ToolEnvironment:
        made.append("tool")
        return ToolEnvironment()

    catalogue = Catalogue({"tool": maker})
    assert list(catalogue) == ["tool"] and len(catalogue) == 1 and "tool" in catalogue
    assert made == []
    assert catalogue["tool"] is catalogue["tool"]
    assert made == ["tool"]


@pytest.mark.parametrize("name", ["reasoning", "tool", "qa"])
def test_every_environment_keeps_its_promises(name: str) -> None:
    environment = environments()[name]
    assert environment.name == name
    again = environments()[name]
    train = {environment.task("train", index).payload for index in range(150)}
    held_out = {environment.task("heldout", index).payload for index in range(150)}
    assert not train & held_out
    assert len(train) > 75 and len(held_out) > 50
    for split in ("train", "heldout"):
        for index in range(20):
            task = environment.task(split, index)
            assert task == again.task(split, index)
            assert (task.environment, task.task_id, task.split) == (name, f"{name}-{split}-{index}", split)
            assert len(task.payload) <= MAX_PAYLOAD_BYTES
            assert [message["role"] for message in environment.messages(task)] == ["system", "user"]
            assert environment.verify(task, "no idea", []).score == 0.0
            assert environment.max_turns(task) >= 1 + bool(environment.tools(task))


@pytest.mark.parametrize(
    ("task", "named"),
    [
        (Task("tool", "t", "train", b"{}"), "environment: 'tool' given, 'qa' allowed"),
        (Task("qa", "t", "train", b"\xff"), "payload of task t: not JSON"),
        (Task("qa", "t", "train", b"[]"), "a JSON object is wanted"),
        (Task("qa", "t", "train", b'{"function":"f"}'), "field 'parameter' is missing or not text"),
    ],
)
def test_a_task_that_is_not_this_environments_is_refused(task: Task, named: str) -> None:
    with pytest.raises(InvalidTask, match=named):
        environments()["qa"].messages(task)


def test_payload_has_a_limit() -> None:
    with pytest.raises(InvalidTask, match="16397 bytes given, at most 16384"):
        pack({"question": "x" * 16_382})
