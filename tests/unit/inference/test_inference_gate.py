"""The engine's gate as an ASGI app around a stand-in for vLLM's."""

import asyncio
from time import monotonic
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from services.inference import gate
from services.inference.gate import EngineGate

TOKEN = {"authorization": "Bearer tok"}


class App:
    """Answers generate calls when told to, or when they are aborted."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.pauses = self.aborts = 0
        self.state = SimpleNamespace(engine_client=self)
        self.output_processor = SimpleNamespace(request_states={"r": 1}, parent_requests={})
        # An abort that comes before the request has reached the engine misses it.
        self.deaf_aborts = 0

    async def pause_generation(self, *, mode: str, clear_cache: bool) -> None:
        assert (mode, clear_cache) == ("abort", False)
        self.pauses += 1
        if not self.deaf_aborts:
            self.release.set()

    async def abort(self, request_ids: list[str], *, internal: bool) -> None:
        assert request_ids == ["r"] and internal
        self.aborts += 1
        if self.aborts >= self.deaf_aborts:
            self.release.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"].endswith("/generate"):
            self.entered.set()
            await self.release.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"sampled"})


class Door:
    def __init__(self) -> None:
        self.app = App()
        self.gate = EngineGate(self.app)

        async def with_app(scope: Any, receive: Any, send: Any) -> None:
            await self.gate({**scope, "app": self.app}, receive, send)

        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(with_app), base_url="http://engine", headers=TOKEN)

    async def admin(self, **order: object) -> dict[str, Any]:
        return (await self.http.post("/forgerl/gate", json=order)).json()

    def generate(self, digest: str) -> Any:
        return self.http.post("/inference/v1/generate", headers={"x-forgerl-policy": digest}, json={})


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    monkeypatch.setenv("FORGERL_TOKEN", "tok")
    return Door()


async def test_it_starts_closed_and_opens_for_one_digest(door: Door) -> None:
    door.app.release.set()
    refused = await door.generate("d1")
    assert refused.status_code == 409
    assert refused.json() == {"error": "policy_changed", "open": False, "policy_digest": ""}
    state = await door.admin(open=True, policy_digest="d1", policy_step=3, run_id="run-1")
    assert (state["open"], state["policy_digest"], state["policy_step"], state["run_id"]) == (True, "d1", 3, "run-1")
    assert (await door.generate("d1")).text == "sampled"
    assert (await door.generate("d0")).status_code == 409
    assert (await door.http.post("/inference/v1/generate", json={})).status_code == 409


@pytest.mark.parametrize("path", ["/v1/chat/completions/render", "/v1/chat/completions/derender", "/tokenize"])
async def test_what_does_not_depend_on_weights_passes_a_closed_gate(door: Door, path: str) -> None:
    assert (await door.http.post(path, json={})).text == "sampled"


async def test_only_health_and_metrics_are_open_to_all(door: Door) -> None:
    assert (await door.http.get("/health", headers={"authorization": ""})).status_code == 200
    for path in ("/forgerl/gate", "/pause", "/collective_rpc", "/v1/models"):
        assert (await door.http.post(path, headers={"authorization": "Bearer x"})).status_code == 401


async def test_draining_waits_for_every_call_to_end(door: Door) -> None:
    await door.admin(open=True, policy_digest="d1")
    call = asyncio.create_task(door.generate("d1"))
    await door.app.entered.wait()
    assert (await door.http.get("/forgerl/gate")).json()["in_flight"] == 1
    state = await door.admin(open=False, drain="abort", deadline_s=5)
    assert (state["open"], state["in_flight"], state["aborted"], door.app.pauses) == (False, 0, 1, 1)
    assert (await call).status_code == 200


async def test_a_call_that_reaches_the_engine_after_the_abort_is_aborted_too(door: Door) -> None:
    door.app.deaf_aborts = 2
    await door.admin(open=True, policy_digest="d1")
    call = asyncio.create_task(door.generate("d1"))
    await door.app.entered.wait()
    state = await door.admin(open=False, drain="abort", deadline_s=5)
    assert (state["in_flight"], door.app.aborts) == (0, 2)
    await call


async def test_a_call_that_never_ends_is_told_at_the_deadline(door: Door) -> None:
    door.app.deaf_aborts = 10_000
    await door.admin(open=True, policy_digest="d1")
    call = asyncio.create_task(door.generate("d1"))
    await door.app.entered.wait()
    assert (await door.admin(open=False, drain="abort", deadline_s=0.1))["in_flight"] == 1
    call.cancel()


async def test_waiting_lets_a_call_end_by_itself(door: Door) -> None:
    await door.admin(open=True, policy_digest="d1")
    call = asyncio.create_task(door.generate("d1"))
    await door.app.entered.wait()
    drain = asyncio.create_task(door.admin(open=False, drain="wait", deadline_s=5))
    await asyncio.sleep(0)
    door.app.release.set()
    assert ((await drain)["aborted"], door.app.pauses) == (0, 0)
    assert (await call).text == "sampled"


async def test_a_call_that_outlives_the_waiting_is_given_a_moment_not_the_wait_again(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "_ABORT_S", 0.05)
    door.app.deaf_aborts = 10_000
    await door.admin(open=True, policy_digest="d1")
    call = asyncio.create_task(door.generate("d1"))
    await door.app.entered.wait()
    began_s = monotonic()
    assert (await door.admin(open=False, drain="wait", deadline_s=1.0))["in_flight"] == 1
    assert 1.0 <= monotonic() - began_s < 1.8
    call.cancel()


async def test_another_boot_is_not_opened(door: Door) -> None:
    answer = await door.http.post("/forgerl/gate", json={"open": True, "policy_digest": "d1", "boot_id": "of the dead"})
    assert answer.status_code == 409
    assert (await door.http.get("/forgerl/gate")).json()["open"] is False
