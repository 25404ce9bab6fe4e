"""Where a stack is: what can't be an address or a token is refused before a call, and a stopped stack is known."""

import json
import os

import grpc
import pytest

from services.client import AsyncClient, Places
from services.kernel.errors import InvalidInput, Refused, Transient


@pytest.fixture(autouse=True)
def no_stack(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("FORGERL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("FORGERL_HOME", str(tmp_path))
    monkeypatch.setenv("FORGERL_TOKEN", "token")


def record(tmp_path, **fields) -> None:
    (tmp_path / "default").mkdir(exist_ok=True)
    env = {"FORGERL_GATEWAY_ADDRESS": "127.0.0.1:7"}
    (tmp_path / "default" / "stack.json").write_text(json.dumps({"env": env, "pid": os.getpid(), **fields}))


@pytest.mark.parametrize("address", ["nonsense", "http://127.0.0.1:7401", "127.0.0.1", ":7401", "host:port"])
def test_an_address_is_host_and_port(monkeypatch, address):
    monkeypatch.setenv("FORGERL_GATEWAY_ADDRESS", address)
    with pytest.raises(InvalidInput, match=r"FORGERL_GATEWAY_ADDRESS: given .*; allowed host:port"):
        Places.of()


@pytest.mark.parametrize("address", ["127.0.0.1:7401", "gateway:7401", "[::1]:7401"])
def test_names_and_both_kinds_of_numbers_are_addresses(monkeypatch, address):
    monkeypatch.setenv("FORGERL_GATEWAY_ADDRESS", address)
    assert Places.of().gateway == address


@pytest.mark.parametrize("token", ["tökén", "to\nken"])
def test_a_token_that_no_header_can_carry_is_refused_without_showing_it(monkeypatch, token):
    monkeypatch.setenv("FORGERL_GATEWAY_ADDRESS", "127.0.0.1:7401")
    monkeypatch.setenv("FORGERL_TOKEN", token)
    with pytest.raises(InvalidInput, match="FORGERL_TOKEN") as refused:
        Places.of()
    assert token not in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "down"),
    [
        ({"state": "stopped"}, True),
        ({"state": "failed"}, True),
        ({"state": "healthy"}, False),
        ({"state": "healthy", "pid": 2**30}, True),
    ],
)
def test_a_record_tells_whether_the_stack_is_up(tmp_path, fields, down):
    record(tmp_path, **fields)
    assert Places.of().is_down() is down


def test_a_stack_elsewhere_is_never_known_to_be_down(monkeypatch, tmp_path):
    record(tmp_path, state="stopped")
    monkeypatch.setenv("FORGERL_GATEWAY_ADDRESS", "127.0.0.1:8")
    assert not Places.of().is_down()


class _Nobody(grpc.RpcError):
    def code(self):
        return grpc.StatusCode.UNAVAILABLE

    def details(self):
        return "nobody"

    def trailing_metadata(self):
        return ()


async def _refuse(_request, timeout):
    raise _Nobody


async def test_no_patience_with_a_stack_that_was_stopped_but_with_one_that_answered_before(tmp_path):
    record(tmp_path, state="stopped")

    async def answer(_request, timeout):
        return "yes"

    async with AsyncClient(Places.of(), patience_s=0.01) as client:
        with pytest.raises(Refused, match="instance default is not up: forgerl up"):
            await client._call(_refuse, None)
        assert await client._call(answer, None) == "yes"
        with pytest.raises(Transient):
            await client._call(_refuse, None)


@pytest.mark.parametrize("given", ["soon", "-1", "nan", "inf"])
def test_patience_is_a_number_of_seconds(monkeypatch, tmp_path, given):
    record(tmp_path, state="healthy")
    monkeypatch.setenv("FORGERL_PATIENCE_S", given)
    with pytest.raises(InvalidInput, match=r"FORGERL_PATIENCE_S: given .*; allowed seconds, 0 or more"):
        AsyncClient(Places.of())
