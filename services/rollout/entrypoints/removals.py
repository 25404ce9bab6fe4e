"""Runs that are removed take their long texts along. It refuses to decide which: that is written in the events."""

from collections.abc import Sequence
from dataclasses import dataclass

from forgerl.events.v1.gateway_pb2 import RunRemoved

from services.kernel.envelope import Event
from services.kernel.event_store import Write
from services.rollout.adapters.freeing import RunTexts
from services.rollout.entrypoints.consumer import ADMISSION_TOPIC, AdmissionConsumer

TOPICS = (ADMISSION_TOPIC, "forgerl.gateway.run.v1")


@dataclass(frozen=True, slots=True)
class Consumer:
    """Handles all topics that rollout consumes; as one subscription, since each costs a look at the broker."""

    admissions: AdmissionConsumer
    texts: RunTexts

    async def handle(self, events: Sequence[Event]) -> Sequence[Write]:
        """Start and cancel what is admitted and revoked, then free what is removed."""
        await self.admissions.handle(events)
        removed = {event.message.run_id for event in events if isinstance(event.message, RunRemoved)}
        return await self.texts.free(removed) if removed else ()
