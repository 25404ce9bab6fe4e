"""`forgerl policy` against a trainer that answers with three policies: one gone, one kept, one with an adapter."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest
from forgerl.trainer.v1 import policy_service_pb2 as pb
from forgerl.trainer.v1.policy_service_pb2_grpc import PolicyServiceServicer, add_PolicyServiceServicer_to_server

from services.cli.errors import CommandError, UsageError
from services.cli.policy_command import export_policy, list_policies, show_policy
from services.kernel.blobs import Blobs

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Trainer(PolicyServiceServicer):
    def __init__(self, uri: str) -> None:
        self.views = [
            pb.PolicyView(step=0, digest="a" * 64, uri=uri, kept_as="first", size_bytes=3 << 20),
            pb.PolicyView(step=1, digest="b" * 64, uri="file:///gone", size_bytes=1 << 20, reward_mean=0.25),
            pb.PolicyView(step=2, digest="c" * 64, uri=uri, kept_as="newest", size_bytes=1 << 19, reward_mean=0.5),
        ]
        self.views[1].mismatch_kl = self.views[2].mismatch_kl = 2.5e-4
        self.views[2].adapter = True
        for view in self.views:
            view.published_at.FromDatetime(AT)

    def ListPolicies(self, request, context):
        return pb.ListPoliciesResponse(policies=[v for v in self.views if v.kept_as or request.include_gone])

    def GetMetrics(self, request, context):
        return pb.GetMetricsResponse(steps=[pb.StepMetrics(step=2, metrics={"reward_mean": 0.5, "J": 1.25})])


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A published policy in a blob store."""
    source = tmp_path / "source"
    (source / "adapter").mkdir(parents=True)
    for name, text in {"config.json": "{}", "model.safetensors": "w", "adapter/adapter_config.json": "{}"}.items():
        (source / name).write_text(text)
    uri = asyncio.run(Blobs.open(f"file://{tmp_path}/blobs").put_folder("policies/r/000002-cccccccccccc", source))
    return Path(uri.removeprefix("file://"))


@pytest.fixture(autouse=True)
def stack(policy: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = grpc.server(ThreadPoolExecutor(2))
    add_PolicyServiceServicer_to_server(Trainer(f"file://{policy}"), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("FORGERL_TRAINER_ADDRESS", f"127.0.0.1:{port}")
    monkeypatch.setenv("FORGERL_GATEWAY_ADDRESS", "127.0.0.1:9")
    monkeypatch.setenv("FORGERL_TOKEN", "0" * 32)
    monkeypatch.setenv("COLUMNS", "200")
    yield
    server.stop(None).wait()


def test_the_list_says_what_is_kept_and_why(capsys: pytest.CaptureFixture[str]):
    list_policies(None, "r", as_json=False)
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["step", "digest", "published", "reward", "mismatch", "KL", "MiB", "kept", "where"]
    assert lines[0].split()[:8] == ["0", "a" * 12, "2026-01-02", "03:04:05", "–", "–", "3.0", "first"]
    assert lines[1].split() == ["1", "b" * 12, "2026-01-02", "03:04:05", "0.250", "2.50e-04", "1.0", "gone"]
    assert lines[2].split()[4:10] == ["0.500", "2.50e-04", "0.5", "newest", "+", "adapter"]


def test_the_list_as_json_is_one_object_a_policy(capsys: pytest.CaptureFixture[str], policy: Path):
    list_policies(None, "r", as_json=True)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(p["step"], p["kept"], p["size_bytes"]) for p in found] == [
        (0, "first", 3 << 20),
        (1, "gone", 1 << 20),
        (2, "newest", 1 << 19),
    ]
    assert found[0]["reward_mean"] is None
    assert found[2] == {
        "step": 2,
        "digest": "c" * 64,
        "published_at": "2026-01-02 03:04:05",
        "reward_mean": 0.5,
        "mismatch_kl": 2.5e-4,
        "size_bytes": 1 << 19,
        "kept": "newest",
        "adapter": True,
        "uri": f"file://{policy}",
    }


def test_one_policy_with_what_its_step_measured(capsys: pytest.CaptureFixture[str]):
    show_policy(None, "r", 2, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["kept"], shown["metrics"]) == ("newest", {"J": 1.25, "reward_mean": 0.5})
    show_policy(None, "r", 1, as_json=False)
    lines = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert (lines["kept"], lines["reward_mean"]) == (["gone"], ["0.25"])
    with pytest.raises(UsageError, match=r"step: given 7; allowed of r: 0, 1, 2"):
        show_policy(None, "r", 7, as_json=False)


def test_an_export_is_the_model_and_the_adapter_is_by_itself(tmp_path: Path):
    export_policy(None, "r", 2, tmp_path / "model", adapter=False)
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]
    export_policy(None, "r", 2, tmp_path / "lora", adapter=True)
    assert [p.name for p in (tmp_path / "lora").iterdir()] == ["adapter_config.json"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["blobs", "lora", "model", "source"]


def test_what_cannot_be_exported_leaves_nothing(tmp_path: Path, policy: Path):
    with pytest.raises(UsageError, match=r"step: given 1; allowed of r: 0, 2"):
        export_policy(None, "r", 1, tmp_path / "out", adapter=False)
    with pytest.raises(UsageError, match=r"--adapter: policy 0 of r has none"):
        export_policy(None, "r", 0, tmp_path / "out", adapter=True)
    with pytest.raises(UsageError, match="is there already"):
        export_policy(None, "r", 2, policy, adapter=False)
    (policy / "model.safetensors").write_text("torn")
    with pytest.raises(CommandError, match=r"model\.safetensors is corrupt"):
        export_policy(None, "r", 2, tmp_path / "out", adapter=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["blobs", "source"]
