"""Briefs by common calls, with a gateway by script."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from services.environments.interface import Task
from services.kernel.errors import NotFound, Permanent, Transient
from services.rollout.adapters.briefs import FORESEEN, MOST, CommonBriefs
from services.rollout.ports import Brief

TASK = Task("tool", "t", "train", b"")


@dataclass
class Gateway:
    """Answers what it is asked once the gate is open; `fits` at a time, where that is set."""

    unknown: set[str] = field(default_factory=set)
    bad: set[str] = field(default_factory=set)
    away: int = 0
    fits: int = 1_000
    calls: list[list[str]] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, episode_ids: Sequence[str]) -> Mapping[str, Brief | None]:
        self.calls.append(list(episode_ids))
        await self.gate.wait()
        if self.away:
            self.away -= 1
            raise Transient("away")
        if self.bad & set(episode_ids):
            raise Permanent("internal")
        known = [one for one in episode_ids if one not in self.unknown][: self.fits]
        missing = [one for one in episode_ids if one in self.unknown]
        return {one: Brief(one, "run-1", "", TASK, 0.0, 0) for one in known} | dict.fromkeys(missing)


async def asked(gateway: Gateway, briefs: CommonBriefs, names: Sequence[str]) -> list[object]:
    """What came for each, after all of them were asked for."""
    tasks = [asyncio.create_task(briefs.brief(name)) for name in names]
    await asyncio.sleep(0)
    gateway.gate.set()
    found = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
    return [one.episode_id if isinstance(one, Brief) else one for one in found]


def numbered(first: int, last: int) -> list[str]:
    return [f"ep-{number}" for number in range(first, last)]


async def test_what_is_asked_for_during_a_call_is_one_more_call():
    gateway = Gateway()
    briefs = CommonBriefs(gateway.ask)
    assert await asked(gateway, briefs, [*numbered(0, 50), "ep-7"]) == [*numbered(0, 50), "ep-7"]
    assert gateway.calls == [["ep-0"], numbered(1, 50)]
    assert (await briefs.brief("ep-7")).episode_id == "ep-7" and gateway.calls[2:] == [["ep-7"]]


async def test_a_call_asks_for_no_more_than_it_may():
    gateway = Gateway()
    names = numbered(0, MOST + 20)
    assert await asked(gateway, CommonBriefs(gateway.ask), names) == names
    assert gateway.calls == [names[:1], names[1 : MOST + 1], names[MOST + 1 :]]


async def test_what_did_not_fit_is_asked_for_again():
    gateway = Gateway(fits=2)
    assert await asked(gateway, CommonBriefs(gateway.ask), numbered(0, 5)) == numbered(0, 5)
    assert gateway.calls == [["ep-0"], numbered(1, 5), numbered(3, 5)]


async def test_unknown_and_bad_episodes_are_nobody_elses_trouble():
    gateway = Gateway(unknown={"ep-1"}, bad={"ep-2"})
    first, unknown, bad, last = await asked(gateway, CommonBriefs(gateway.ask), numbered(0, 4))
    assert (first, last) == ("ep-0", "ep-3")
    assert isinstance(unknown, NotFound) and "ep-1" in str(unknown)
    assert isinstance(bad, Permanent) and str(bad) == "internal"


async def test_a_gateway_that_is_away_is_told_to_all_who_waited_and_asked_again_by_the_next():
    gateway = Gateway(away=2)
    briefs = CommonBriefs(gateway.ask)
    found = await asked(gateway, briefs, numbered(0, 3))
    assert [str(one) for one in found] == ["away"] * 3 and gateway.calls == [["ep-0"], ["ep-1", "ep-2"]]
    assert await asked(gateway, briefs, numbered(0, 3)) == numbered(0, 3)


async def test_one_who_is_called_off_leaves_the_others_waiting():
    gateway = Gateway()
    briefs = CommonBriefs(gateway.ask)
    caller, other = (asyncio.create_task(briefs.brief(name)) for name in ("ep-0", "ep-1"))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    gateway.gate.set()
    assert (await asyncio.wait_for(other, 10)).episode_id == "ep-1"
    assert gateway.calls == [["ep-0"], ["ep-1"]]


async def test_what_was_foreseen_is_there_once_and_also_for_those_who_ask_meanwhile():
    gateway = Gateway(unknown={"ep-2"})
    briefs = CommonBriefs(gateway.ask)
    foreseeing = asyncio.create_task(briefs.foresee(numbered(0, 3)))
    await asyncio.sleep(0)
    early, _, unknown = await asked(gateway, briefs, ["ep-0", "ep-1", "ep-2"])
    await foreseeing
    assert early == "ep-0" and isinstance(unknown, NotFound)
    assert gateway.calls == [numbered(0, 3), ["ep-2"]]
    assert (await briefs.brief("ep-1")).episode_id == "ep-1" and gateway.calls[2:] == [["ep-1"]]


async def test_what_could_not_be_foreseen_is_asked_for_when_it_is_wanted():
    gateway = Gateway(away=1)
    gateway.gate.set()
    briefs = CommonBriefs(gateway.ask)
    await briefs.foresee(["ep-0"])
    assert (await briefs.brief("ep-0")).episode_id == "ep-0" and len(gateway.calls) == 2


async def test_what_nobody_comes_for_makes_room():
    gateway = Gateway()
    gateway.gate.set()
    briefs = CommonBriefs(gateway.ask)
    await briefs.foresee(numbered(0, FORESEEN + 1))
    calls = len(gateway.calls)
    assert calls == FORESEEN // MOST + 1
    await briefs.brief("ep-1")
    assert len(gateway.calls) == calls
    await briefs.brief("ep-0")
    assert gateway.calls[calls:] == [["ep-0"]]
