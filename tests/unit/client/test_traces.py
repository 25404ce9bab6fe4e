"""Spans from files to a tree."""

import json
import os

import pytest

from services.client.places import Places
from services.client.sync import Client
from services.client.traces import find_trace, read_trace
from services.kernel.errors import NotFound, Refused

TRACE = "0af7651916cd43dd8448eb211c80319c"


def row(span: str, parent: str, name: str, start_ms: int, **more) -> str:
    return json.dumps(
        {
            "trace_id": TRACE, "span_id": span, "parent_span_id": parent, "name": name, "service": "s",
            "kind": "internal", "start_ns": start_ms * 1_000_000,
            "end_ns": (start_ms + 5) * 1_000_000, "status": "ok", "attributes": {},
            "links": [], **more,
        }
    )  # fmt: skip


def test_a_tree_over_files_with_a_linked_step_at_the_end(tmp_path):
    folder = tmp_path / "traces"
    folder.mkdir()
    step = row("d", "", "trainer.step", 900, trace_id="f" * 32, links=[f"{TRACE}-a"])
    (folder / "gateway-1.jsonl").write_text(f"{row('a', '', 'submit', 100)}\n{row('c', 'b', 'call', 130)}\n")
    (folder / "rollout-2.jsonl").write_text(
        f"{row('b', 'a', 'episode', 120)}\n{step}\n" + row("x", "a", "half", 1)[:-9]
    )
    places = Places("g", "s", "r", "t", "token", tmp_path)
    roots = read_trace(places, f"00-{TRACE}-00f067aa0ba902b7-01")
    assert [(node.name, node.linked) for node in roots] == [("submit", False), ("trainer.step", True)]
    [episode] = roots[0].children
    assert episode.name == "episode" and [node.name for node in episode.children] == ["call"]
    assert (
        roots[0].start_s == 0 and episode.start_s == pytest.approx(0.02) and episode.duration_s == pytest.approx(0.005)
    )


def test_a_trace_that_is_not_there_is_said(tmp_path):
    (tmp_path / "traces").mkdir()
    with pytest.raises(NotFound, match=TRACE):
        read_trace(Places("g", "s", "r", "t", "token", tmp_path), f"00-{TRACE}-00f067aa0ba902b7-01")


def test_an_episode_is_found_by_its_id_with_nothing_up(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "traces"
    folder.mkdir(parents=True)
    lost = row("l", "", "episode", 50, trace_id="e" * 32, attributes={"subject": "r.qa.1.0"})
    root = row("a", "", "episode", 100, attributes={"subject": "r.qa.1.0"})
    other = row("o", "", "episode", 90, trace_id="d" * 32, attributes={"subject": "r.qa.1.01"})
    mention = row("m", "", "answer", 95, trace_id="c" * 32, attributes={"episode_id": "r.qa.1.0"})
    (folder / "gateway-1.jsonl").write_text(f"{lost}\n{root}\n{other}\n{mention}\n{row('b', 'a', 'call', 130)}\n")
    for name in [name for name in os.environ if name.startswith("FORGERL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("FORGERL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FORGERL_TOKEN", "t")
    monkeypatch.setenv("FORGERL_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("FORGERL_GATEWAY_ADDRESS", "127.0.0.1:1")
    with Client() as client:
        [found] = client.trace("r.qa.1.0")
    assert (found.span_id, [node.name for node in found.children]) == ("a", ["call"])


def test_an_episode_without_a_root_here_is_looked_up_and_no_files_is_said(tmp_path):
    (tmp_path / "traces").mkdir()
    assert find_trace(Places("g", "s", "r", "t", "token", data_dir=tmp_path), "r.qa.1.0") == []
    with pytest.raises(Refused, match="this one has none"):
        find_trace(Places("g", "s", "r", "t", "token", data_dir=tmp_path / "elsewhere"), "r.qa.1.0")
