"""What every back end of the event store must do."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import psycopg
import pytest
from clocks import ManualClock
from forgerl.events.v1 import gateway_pb2

from services.kernel.catalogue import Catalogue
from services.kernel.envelope import Cause
from services.kernel.errors import Conflict, InvalidInput, Permanent, Transient
from services.kernel.event_store import CausedWrite, EventStore, Seen, Write
from services.kernel.inbox import Gap, Inbox

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
STREAM = "gateway.episode/ep-1"


def fact(reason: str) -> gateway_pb2.EpisodeCancelled:
    return gateway_pb2.EpisodeCancelled(episode_id="ep-1", reason=reason)


def catalogue() -> Catalogue:
    return Catalogue.from_modules([gateway_pb2])


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[EventStore]:
    opened = EventStore.open(store_url, catalogue(), ManualClock(NOON))
    yield opened
    await opened.close()


async def test_what_was_appended_is_read_back(store: EventStore) -> None:
    cause = Cause("conversation", "before@1", "00-" + "a" * 32 + "-" + "b" * 16 + "-01")
    appended = await store.append([Write(STREAM, 0, (fact("one"), fact("two")))], cause=cause)
    assert [event.id for event in appended] == [f"{STREAM}@1", f"{STREAM}@2"]
    assert await store.read(STREAM) == appended
    assert (appended[1].time, appended[1].cause, appended[1].message) == (NOON, cause, fact("two"))
    assert await store.read(STREAM, after=1) == appended[1:]
    assert await store.read(STREAM, limit=1) == appended[:1]
    assert (await store.version(STREAM), await store.version("gateway.episode/none")) == (2, 0)


@pytest.mark.parametrize("expected_version", [0, 1, 3, 7])
async def test_a_stream_that_moved_is_a_conflict_and_nothing_is_written(
    store: EventStore, expected_version: int
) -> None:
    await store.append([Write(STREAM, 0, (fact("one"), fact("two")))])
    other = Write("gateway.turns/ep-1", 0, (fact("other"),))
    with pytest.raises(Conflict):
        await store.append([other, Write(STREAM, expected_version, (fact("late"),))], seen=[Seen("c", "s", 1)])
    assert await store.version("gateway.turns/ep-1") == 0
    assert await store.seen_version("c", "s") == 0
    assert await store.version(STREAM) == 2


async def test_several_streams_and_several_trackings_are_one_transaction(store: EventStore) -> None:
    writes = [Write(STREAM, 0, (fact("one"),)), Write("gateway.turns/ep-1", 0, (fact("two"),))]
    await store.append(writes, seen=[Seen("c", "z", 4), Seen("c", "a", 9)])
    assert await store.seen_versions("c", ["a", "z", "q"]) == {"a": 9, "z": 4, "q": 0}
    with pytest.raises(Conflict):
        await store.append([Write(STREAM, 1, (fact("again"),))], seen=[Seen("c", "a", 10), Seen("c", "z", 4)])
    assert (await store.version(STREAM), await store.seen_version("c", "a")) == (1, 9)


async def test_one_stream_twice_in_an_append_is_refused(store: EventStore) -> None:
    with pytest.raises(Permanent):
        await store.append([Write(STREAM, 0, (fact("one"),)), Write(STREAM, 1, (fact("two"),))])


async def test_a_repeat_of_an_own_append_with_a_lost_answer_is_a_success(store: EventStore) -> None:
    write = CausedWrite(STREAM, 0, (fact("one"),), Cause("c", "", ""))
    first = await store.append([write])
    assert await store.append([write]) == first
    assert await store.version(STREAM) == 1


async def test_notifications_follow_the_order_of_commits(store: EventStore) -> None:
    await store.append([Write("b.x/1", 0, (fact("1"),)), Write("a.x/1", 0, (fact("2"),))])
    await store.append([Write("b.x/1", 1, (fact("3"),))])
    seen = await store.notifications(0, 10)
    assert [event.id for _, event in seen] == ["b.x/1@1", "a.x/1@1", "b.x/1@2"]
    numbers = [number for number, _ in seen]
    assert numbers == sorted(set(numbers))
    assert [event.id for _, event in await store.notifications(numbers[0], 1)] == ["a.x/1@1"]


async def test_streams_are_found_by_prefix(store: EventStore) -> None:
    names = ["gateway.turns/a_b", "gateway.turns/aXb", "gateway.turnsy/a", "gateway.turns/é"]
    await store.append([Write(name, 0, (fact("x"),)) for name in names])
    assert await store.streams("gateway.turns/") == sorted(
        ["gateway.turns/a_b", "gateway.turns/aXb", "gateway.turns/é"]
    )
    assert await store.streams("gateway.turns/a_") == ["gateway.turns/a_b"]


async def test_of_many_rivals_each_version_is_won_once(store_url: str) -> None:
    stores = [EventStore.open(store_url, catalogue(), ManualClock(NOON)) for _ in range(3)]

    async def rival(store: EventStore, name: str) -> int:
        won = 0
        while (at := await store.version(STREAM)) < 12:
            try:
                await store.append([Write(STREAM, at, (fact(f"{name}{at}"),))])
                won += 1
            except Conflict:
                continue
        return won

    wins = await asyncio.gather(*(rival(store, str(number)) for number, store in enumerate(stores)))
    history = await stores[0].read(STREAM)
    assert [event.version for event in history] == list(range(1, len(history) + 1))
    assert sum(wins) == len(history)
    for store in stores:
        await store.close()


async def test_the_lease_is_one_process_s_at_a_time(store: EventStore) -> None:
    first, second = store.lease("relay"), store.lease("relay")
    assert (first.held(), second.held(), first.held()) == (True, False, True)
    first.release()
    assert (second.held(), first.held()) == (True, False)
    second.release()


async def test_an_append_wakes_subscribers_and_progress_alone_does_not(store: EventStore) -> None:
    flag = store.subscribe()
    await store.append([], seen=[Seen("c", "s", 1)])
    assert not flag.is_set()
    await store.append([Write(STREAM, 0, (fact("one"),))])
    assert flag.is_set()


async def test_what_is_open_elsewhere_survives_closing_and_opening(store_url: str) -> None:
    first = EventStore.open(store_url, catalogue(), ManualClock(NOON), durability="power")
    await first.append([Write(STREAM, 0, (fact("one"),))], seen=[Seen("c", "s", 3)])
    await first.close()
    again = EventStore.open(store_url, catalogue(), ManualClock(NOON))
    assert ([e.message for e in await again.read(STREAM)], await again.seen_version("c", "s")) == ([fact("one")], 3)
    await again.close()


async def test_the_inbox_handles_once_and_in_order(store: EventStore) -> None:
    events = await store.append([Write(STREAM, 0, (fact("one"), fact("two"), fact("three")))])
    handled: list[str] = []

    async def handler(new):
        handled.extend(event.id for event in new)
        return [Write("out.x/ep-1", await store.version("out.x/ep-1"), (fact("derived"),))]

    inbox = Inbox(store, "me")
    await inbox.handle(events[:2], handler)
    await inbox.handle(events[:2], handler)
    assert handled == [f"{STREAM}@1", f"{STREAM}@2"]
    derived = (await store.read("out.x/ep-1"))[0]
    assert (derived.cause.causation_id, derived.cause.correlation_id) == (f"{STREAM}@2", f"{STREAM}@1")
    with pytest.raises(Gap):
        await Inbox(store, "other").handle(events[1:], handler)
    await inbox.handle(events, handler)
    assert (handled[2:], await store.seen_version("me", STREAM)) == ([f"{STREAM}@3"], 3)


async def test_the_inbox_decides_anew_after_a_conflict(store: EventStore) -> None:
    events = await store.append([Write(STREAM, 0, (fact("one"),))])
    attempts: list[int] = []

    async def handler(_):
        at = await store.version("out.x/ep-1")
        attempts.append(at)
        if not at:  # A rival gets in between the decision and the append.
            await store.append([Write("out.x/ep-1", 0, (fact("rival"),))])
        return [Write("out.x/ep-1", at, (fact("mine"),))]

    await Inbox(store, "me").handle(events, handler)
    assert attempts == [0, 1]
    assert [event.message.reason for event in await store.read("out.x/ep-1")] == ["rival", "mine"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("url", ["mysql://x", "", "postgresql://host-without-database"])
def test_an_unknown_url_is_named(url: str) -> None:
    with pytest.raises(InvalidInput, match="store_url"):
        EventStore.open(url, catalogue(), ManualClock(NOON))


def test_a_server_that_is_away_is_transient() -> None:
    with pytest.raises(Transient):
        EventStore.open("postgresql://u:p@127.0.0.1:1/db", catalogue(), ManualClock(NOON))


def test_a_database_that_is_not_in_utf8_is_refused_in_one_line(postgres_server: str) -> None:
    name = f"ascii{os.urandom(4).hex()}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
        )
        try:
            with pytest.raises(InvalidInput) as refused:
                EventStore.open(f"{postgres_server.rpartition('/')[0]}/{name}", catalogue(), ManualClock(NOON))
        finally:
            connection.execute(f"DROP DATABASE {name}")
    line = f"store_url: given '{name} in SQL_ASCII'; allowed UTF8, as by createdb -T template0 -E UTF8"
    assert refused.value.message == line
