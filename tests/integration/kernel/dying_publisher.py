"""A publisher that kills itself -9 at a named moment: `python dying_publisher.py STORE_URL BROKER_URL MOMENT`."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from forgerl.events.v1 import gateway_pb2

from services.kernel.catalogue import Catalogue
from services.kernel.clock import SystemClock
from services.kernel.event_store import EventStore, Seen, Write
from services.kernel.outbox import Relay
from services.kernel.topics import BrokerSettings


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DiesBeforeCursor(EventStore):
    async def append(self, writes: Sequence[Write], *, cause=None, seen: Sequence[Seen] = ()):
        if any(item.consumer == "relay" for item in seen):
            die()
        return await super().append(writes, cause=cause, seen=seen)


async def main(store_url: str, broker_url: str, moment: str) -> None:
    catalogue = Catalogue.from_modules([gateway_pb2])
    store = DiesBeforeCursor.open(store_url, catalogue, SystemClock())
    facts = tuple(gateway_pb2.EpisodeCancelled(episode_id=moment, reason=str(number)) for number in range(3))
    await store.append([Write(f"gateway.episode/{moment}", 0, facts)])
    if moment == "append":
        die()
    await asyncio.wait_for(Relay(store, BrokerSettings(broker_url), catalogue, "gateway").run(), 30)


asyncio.run(main(*sys.argv[1:]))
