"""Policies, states and KV changes, without an engine."""

import json
import socket
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic

import pytest

from services.inference.adapters.kv_events import _one
from services.inference.adapters.policies import StoredPolicies
from services.inference.domain.engine import Gate, Load, Seen, Shape, State, serves, state_of
from services.inference.domain.kv import BlockLedger, KvChange, StoredBlock, merge
from services.inference.domain.policies import Policy, PolicyBook
from services.inference.engine import await_pool, check_model, engine_arguments
from services.inference.policy_worker import differs
from services.inference.settings import EngineSettings
from services.kernel.blobs import Blobs
from services.kernel.errors import InvalidInput

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def policy(run: str, step: int) -> Policy:
    return Policy(run, step, f"{run}-{step}", f"file:///{run}/{step}")


def at(seconds: int) -> datetime:
    return T0 + timedelta(seconds=seconds)


def test_the_newest_step_of_the_run_that_was_active_last_is_desired() -> None:
    book = PolicyBook()
    assert book.desired() is None
    book = book.note(policy("a", 0), at(1)).note(policy("a", 2), at(3)).note(policy("a", 1), at(2))
    assert book.desired() == policy("a", 2)
    book = book.note(policy("b", 0), at(10))
    assert book.desired() == policy("b", 0)
    # Read from the bus in another order, the book is the same.
    other = PolicyBook().note(policy("b", 0), at(10)).note(policy("a", 2), at(3))
    assert other.desired() == policy("b", 0)
    assert book.take_up("a", at(20)).desired() == policy("a", 2)
    assert book.forget("b").desired() == policy("a", 2)


def seen(*, is_open: bool = True, step: int = 1) -> Seen:
    return Seen(Gate("boot", is_open, "a", step, f"a-{step}"), Load(), Shape())


@pytest.mark.parametrize(
    ("look", "swapping", "draining", "expected"),
    [
        (None, False, False, State.STARTING),
        (None, True, True, State.STARTING),
        (seen(), False, False, State.READY),
        (seen(is_open=False), False, False, State.STARTING),
        (seen(is_open=False), True, False, State.SWAPPING),
        (seen(), True, True, State.DRAINING),
    ],
)
def test_the_reported_state(look: Seen | None, swapping: bool, draining: bool, expected: State) -> None:
    assert state_of(look, swapping=swapping, draining=draining) is expected


def test_an_engine_serves_a_policy_only_with_its_gate_open_for_that_digest() -> None:
    assert serves(seen(), policy("a", 1))
    assert not serves(seen(is_open=False), policy("a", 1))
    assert not serves(seen(step=0), policy("a", 1))
    assert not serves(seen(), Policy("b", 1, "a-1", ""))
    assert not serves(None, policy("a", 1))


def block(name: bytes, parent: bytes = b"") -> StoredBlock:
    return StoredBlock(name, parent, (1, 2), "d", "gpu")


def test_changes_merge_to_what_holds_at_the_end() -> None:
    merged = merge(
        [
            KvChange(stored=(block(b"old"),)),
            KvChange(cleared=True),
            KvChange(stored=(block(b"a"), block(b"b", b"a"))),
            KvChange(removed=(b"a",)),
            KvChange(removed=(b"c",)),
            KvChange(stored=(block(b"c"),)),
        ]
    )
    assert merged == KvChange((block(b"b", b"a"), block(b"c")), (b"a",), True)


def test_the_ledger_holds_what_is_cached_and_is_bounded() -> None:
    ledger = BlockLedger(2)
    ledger.apply(KvChange(stored=(block(b"a"), block(b"b"), block(b"c"))))
    assert ledger.held() == [b"b", b"c"]
    ledger.apply(KvChange(removed=(b"b",)))
    assert ledger.held() == [b"c"]
    ledger.apply(KvChange(cleared=True))
    assert ledger.held() == []


def test_an_engines_event_becomes_one_block_each_with_parent_and_salt() -> None:
    event = {
        "type": "BlockStored", "block_hashes": [1, 2], "parent_block_hash": None, "token_ids": [5, 6, 7, 8],
        "block_size": 2, "medium": "GPU", "extra_keys": [["dig"], None],
    }  # fmt: skip
    one, two = (value.to_bytes(8, "big") for value in (1, 2))
    stored = (StoredBlock(one, b"", (5, 6), "dig", "gpu"), StoredBlock(two, one, (7, 8), "dig", "gpu"))
    assert _one(event) == KvChange(stored=stored)
    later = _one({**event, "block_hashes": [3], "parent_block_hash": 2, "token_ids": [9, 9], "extra_keys": [None]})
    assert later.stored[0].parent == two
    assert _one({"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU"}) == KvChange(removed=(one,))
    assert _one({"type": "AllBlocksCleared"}) == KvChange(cleared=True)


def model_folder(path: Path, **changes: object) -> Path:
    path.mkdir()
    config = {"architectures": ["Qwen3ForCausalLM"], "hidden_size": 8, "vocab_size": 16, **changes}
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").write_text("{}")
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "x"}))
    (path / "model.safetensors").write_bytes(b"")
    return path


def test_a_policy_of_another_shape_or_tokenizer_is_named(tmp_path: Path) -> None:
    home = model_folder(tmp_path / "home")
    assert differs(home, model_folder(tmp_path / "same")) == ""
    wide = model_folder(tmp_path / "wide", hidden_size=16)
    assert differs(home, wide) == "hidden_size: the engine was started with 8, the policy has 16"
    other = model_folder(tmp_path / "other")
    (other / "tokenizer.json").write_text('{"other": 1}')
    assert "tokenizer.json" in differs(home, other)
    (other / "model.safetensors").unlink()
    assert "safetensors" in differs(home, other)


def engine_settings(model: Path, **changes: object) -> EngineSettings:
    return EngineSettings(model=model, token="t", secret="s", data_dir=model.parent, **changes)  # type: ignore[arg-type]


def test_a_model_that_cannot_be_served_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"FORGERL_ENGINE_MODEL: given '.*missing'; allowed a folder with config"):
        check_model(engine_settings(tmp_path / "missing"))
    folder = model_folder(tmp_path / "model")
    check_model(engine_settings(folder))
    (folder / "tokenizer_config.json").write_text("{}")
    with pytest.raises(InvalidInput, match="chat template"):
        check_model(engine_settings(folder))


def test_the_engine_is_told_of_pool_and_events_only_where_there_are_any(tmp_path: Path) -> None:
    plain = engine_arguments(engine_settings(tmp_path))
    assert "--kv-transfer-config" not in plain and "--kv-events-config" not in plain and "--max-model-len" not in plain
    full = engine_arguments(engine_settings(tmp_path, kv_pool_port=1, kv_events_port=2, max_model_tokens=512))
    connector = json.loads(full[full.index("--kv-transfer-config") + 1])
    assert connector["kv_connector"] == "LMCacheMPConnector"
    assert connector["kv_connector_extra_config"]["lmcache.mp.heartbeat_interval"] == 1.0
    events = json.loads(full[full.index("--kv-events-config") + 1])
    assert events["endpoint"] == "tcp://127.0.0.1:2"
    assert full[full.index("--max-model-len") + 1] == "512"


@pytest.mark.parametrize(
    ("added", "given", "parser"),
    [
        ("</think>", {}, "qwen3"),
        ("<end>", {}, ""),
        (None, {}, ""),
        ("</think>", {"reasoning_parser": ""}, ""),
        ("<end>", {"reasoning_parser": "mistral"}, "mistral"),
    ],
)
def test_a_model_that_cannot_think_gets_no_reasoning_parser(
    tmp_path: Path, added: str | None, given: dict[str, str], parser: str
) -> None:
    if added:
        (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": [{"id": 1, "content": added}]}))
    arguments = engine_arguments(engine_settings(tmp_path, **given))
    assert ("--reasoning-parser" in arguments) == bool(parser)
    assert not parser or arguments[arguments.index("--reasoning-parser") + 1] == parser


def test_the_engine_waits_until_its_pool_listens(tmp_path: Path) -> None:
    await_pool(engine_settings(tmp_path))
    with socket.socket() as pool:
        pool.bind(("127.0.0.1", 0))
        port = pool.getsockname()[1]
        timer = threading.Timer(0.3, pool.listen)
        timer.start()
        began = monotonic()
        await_pool(engine_settings(tmp_path, kv_pool_port=port))
        assert monotonic() - began >= 0.3
        timer.join()


async def test_pruning_frees_old_copies_and_old_blocks_only(tmp_path: Path) -> None:
    cache, pool = tmp_path / "cache", tmp_path / "l3"
    for name in ("old", "new"):
        (cache / name).mkdir(parents=True)
    pool.mkdir()
    for salt in ("old", "new"):
        (pool / f"-SEP-model@0x01000100@0@abc@{salt}.data").write_bytes(b"kv")
    stored = StoredPolicies(Blobs.open(f"file://{tmp_path}/blobs"), cache, pool)
    await stored.prune(frozenset({"new"}))
    assert [path.name for path in cache.iterdir()] == ["new"]
    assert [path.name for path in pool.iterdir()] == ["-SEP-model@0x01000100@0@abc@new.data"]
