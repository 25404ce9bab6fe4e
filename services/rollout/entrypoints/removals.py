"""Pruned episodes and removed runs take their long texts along. It refuses to decide which: that is in the events."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.kernel.envelope import Event
from services.kernel.event_store import Write
from services.rollout.adapters.freeing import RunTexts
from services.rollout.entrypoints.consumer import ADMISSION_TOPIC, AdmissionConsumer

TOPICS = (ADMISSION_TOPIC, "forgerl.gateway.run.v1", "forgerl.scheduler.retention.v1")


@dataclass(frozen=True, slots=True)
class Consumer:
    """Handles all topics that rollout consumes; as one subscription, since each costs a look at the broker."""

    admissions: AdmissionConsumer
    texts: RunTexts

    async def handle(self, events: Sequence[Event]) -> Sequence[Write]:
        """Start and cancel what is admitted and revoked, then free what is pruned or removed."""
        await self.admissions.handle(events)
        return await self.texts.handle(events)
