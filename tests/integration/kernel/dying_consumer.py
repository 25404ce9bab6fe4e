"""A consumer that kills itself -9: `python dying_consumer.py STORE_URL BROKER_URL EFFECTS_FILE WHEN`."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from forgerl.events.v1 import gateway_pb2

from services.kernel.broker import Broker
from services.kernel.catalogue import Catalogue
from services.kernel.clock import SystemClock
from services.kernel.envelope import Event
from services.kernel.event_store import EventStore, Seen, Write
from services.kernel.topics import BrokerSettings


class DiesAfterCommit(EventStore):
    async def append(self, writes: Sequence[Write], *, cause=None, seen: Sequence[Seen] = ()):
        events = await super().append(writes, cause=cause, seen=seen)
        if any(write.stream == "sink.copy/killed" for write in writes):
            os.kill(os.getpid(), signal.SIGKILL)
        return events


def note(effects: Path) -> None:
    with effects.open("a") as file:
        file.write("killed\n")


async def main(store_url: str, broker_url: str, effects: str, when: str) -> None:
    catalogue = Catalogue.from_modules([gateway_pb2])
    store = DiesAfterCommit.open(store_url, catalogue, SystemClock())

    async def handle(events: Sequence[Event]) -> Sequence[Write]:
        mine = [event for event in events if event.key == "killed"]
        if mine:
            note(Path(effects))
            if when == "die":
                os.kill(os.getpid(), signal.SIGKILL)
        return [Write("sink.copy/killed", 0, (event.message,)) for event in mine]

    broker = Broker(BrokerSettings(broker_url), catalogue, store)
    broker.subscribe(["forgerl.gateway.episode.v1"], service="crash-consumer", handler=handle)
    await asyncio.wait_for(broker.run(), 50)


asyncio.run(main(*sys.argv[1:]))
