"""The sidecar against an engine that remembers what was done to it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from services.inference.application import Pace, Sidecar
from services.inference.domain.engine import Gate, Load, Seen, Shape, State
from services.inference.domain.policies import Policy, PolicyBook
from services.inference.ports import Busy, Outside
from services.kernel.clock import SystemClock
from services.kernel.errors import Refused, Transient

AT = datetime(2026, 1, 1, tzinfo=UTC)
ONE, TWO, THREE = (Policy("run-1", step, f"d{step}", f"uri-{step}") for step in (1, 2, 3))


@dataclass
class Engine:
    boot_id: str = "boot-1"
    up: bool = True
    busy: bool = False
    gate: Gate = field(default_factory=lambda: Gate("boot-1", False, "", 0, ""))
    did: list[str] = field(default_factory=list)
    during_load: Callable[[], Any] = lambda: None
    refuse: str = ""

    def restart(self) -> None:
        self.boot_id = f"{self.boot_id}+"
        self.gate = Gate(self.boot_id, False, "", 0, "")

    async def look(self) -> Seen:
        if not self.up:
            raise Transient("engine: refused")
        if self.busy:
            raise Busy("engine: no answer in time")
        return Seen(self.gate, Load(), Shape(32, 4096))

    async def close(self, *, wait_s: float) -> int:
        self.did.append(f"close {wait_s:g}")
        gate = self.gate
        self.gate = Gate(gate.boot_id, False, gate.run_id, gate.policy_step, gate.policy_digest)
        return 2

    async def load(self, folder: str, policy_digest: str) -> None:
        self.did.append(f"load {folder} {policy_digest}")
        if self.refuse and folder.endswith(self.refuse):
            raise Refused("hidden_size differs")
        self.during_load()

    async def warm_up(self, tokens: int) -> None:
        self.did.append(f"warm {tokens}")

    async def open(self, policy: Policy, boot_id: str) -> None:
        if boot_id != self.boot_id:
            raise Transient("another boot")
        self.did.append(f"open {policy.digest}")
        self.gate = Gate(self.boot_id, True, policy.run_id, policy.step, policy.digest)


@dataclass
class Policies:
    kept: list[frozenset[str]] = field(default_factory=list)

    async def fetch(self, policy: Policy) -> str:
        return f"/{policy.uri}"

    async def prune(self, keep: frozenset[str]) -> None:
        self.kept.append(keep)


@dataclass
class Signals:
    states: list[tuple[State, int]] = field(default_factory=list)

    async def report(self, state: State, seen: Seen | None) -> None:
        self.states.append((state, seen.gate.policy_step if seen else -1))

    async def blocks_changed(self, change: object) -> int:
        return 0


class Turns:
    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        yield


class World:
    def __init__(self) -> None:
        self.engine, self.policies, self.signals = Engine(), Policies(), Signals()
        outside = Outside(self.engine, self.policies, self.signals, Turns(), SystemClock())
        self.sidecar = Sidecar(outside, Pace(heartbeat_s=0.01, silent_s=0.2, warm_up_tokens=96))
        self.book = PolicyBook()

    def publish(self, policy: Policy) -> None:
        self.book = self.book.note(policy, AT)
        self.sidecar.follow(self.book)

    def serves(self, policy: Policy) -> bool:
        return self.engine.gate.is_open and self.engine.gate.policy_digest == policy.digest


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    task = asyncio.create_task(world.sidecar.run())
    yield world
    task.cancel()
    await asyncio.wait([task])


async def test_a_swap_closes_loads_warms_up_once_and_opens(world: World, eventually: Any) -> None:
    world.publish(ONE)
    await eventually(lambda: world.serves(ONE))
    assert world.engine.did == ["close 0", "load /uri-1 d1", "warm 96", "open d1"]
    world.publish(TWO)
    await eventually(lambda: world.serves(TWO))
    assert world.engine.did[4:] == ["close 0", "load /uri-2 d2", "open d2"]
    await eventually(lambda: (State.READY, 2) in world.signals.states)
    order = [state for state, _ in world.signals.states]
    assert order.index(State.STARTING) < order.index(State.SWAPPING) < order.index(State.READY)
    # The policy before is kept: another engine may still be on it.
    await eventually(lambda: world.policies.kept[-1:] == [frozenset({"d1", "d2"})])


async def test_policies_that_come_during_a_swap_are_skipped_but_the_newest(world: World, eventually: Any) -> None:
    def newer() -> None:
        world.engine.during_load = lambda: None
        world.publish(TWO)
        world.publish(THREE)

    world.engine.during_load = newer
    world.publish(ONE)
    await eventually(lambda: world.serves(THREE))
    assert "load /uri-2 d2" not in world.engine.did


async def test_an_engine_that_started_anew_gets_its_policy_again(world: World, eventually: Any) -> None:
    world.publish(ONE)
    await eventually(lambda: world.serves(ONE))
    world.engine.up = False
    await eventually(lambda: world.signals.states[-1][0] is State.STARTING)
    world.engine.restart()
    world.engine.up = True
    await eventually(lambda: world.serves(ONE))
    assert world.engine.did[4:] == ["close 0", "load /uri-1 d1", "warm 96", "open d1"]


async def test_an_engine_that_dies_during_the_load_is_not_opened_with_other_weights(
    world: World, eventually: Any
) -> None:
    def die() -> None:
        world.engine.during_load = lambda: None
        world.engine.restart()

    world.engine.during_load = die
    world.publish(ONE)
    await eventually(lambda: world.serves(ONE))
    assert world.engine.did.count("load /uri-1 d1") == 2


async def test_a_policy_that_does_not_fit_is_refused_once_and_the_next_is_taken(world: World, eventually: Any) -> None:
    world.engine.refuse = "uri-1"
    world.publish(ONE)
    await eventually(lambda: "load /uri-1 d1" in world.engine.did)
    reports = len(world.signals.states)
    await eventually(lambda: len(world.signals.states) > reports + 3)
    assert world.engine.did.count("load /uri-1 d1") == 1
    assert not world.engine.gate.is_open
    world.publish(TWO)
    await eventually(lambda: world.serves(TWO))


async def test_a_sidecar_that_started_anew_leaves_a_fitting_engine_alone(eventually: Any) -> None:
    world = World()
    world.engine.gate = Gate("boot-1", True, "run-1", 1, "d1")
    world.publish(ONE)
    task = asyncio.create_task(world.sidecar.run())
    await eventually(lambda: len(world.signals.states) > 3)
    assert world.engine.did == [] and world.signals.states[-1] == (State.READY, 1)
    task.cancel()
    await asyncio.wait([task])


async def test_a_drained_engine_stays_closed(world: World, eventually: Any) -> None:
    world.publish(ONE)
    await eventually(lambda: world.serves(ONE))
    assert await world.sidecar.drain(3.0) == 2
    assert world.engine.did[-1] == "close 3"
    world.publish(TWO)
    await eventually(lambda: world.signals.states[-1][0] is State.DRAINING)
    assert not world.engine.gate.is_open


async def test_an_engine_too_busy_to_answer_is_lost_only_after_a_while(world: World, eventually: Any) -> None:
    world.publish(ONE)
    await eventually(lambda: (State.READY, 1) in world.signals.states)
    world.engine.busy = True
    told = len(world.signals.states)
    await eventually(lambda: len(world.signals.states) > told + 3)
    assert world.signals.states[-1] == (State.READY, 1)
    await eventually(lambda: world.signals.states[-1] == (State.STARTING, -1))
    world.engine.busy = False
    await eventually(lambda: world.signals.states[-1] == (State.READY, 1))
    assert world.engine.did.count("load /uri-1 d1") == 1
