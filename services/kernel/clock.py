"""Time and fresh ids as things that are handed in; refuses to be read from anywhere else."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from time import monotonic
from typing import Protocol

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


class Clock(Protocol):
    """Wall clock and stop watch."""

    def now(self) -> datetime:
        """The time, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow; the zero means nothing."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return monotonic()


async def every(period_s: float) -> AsyncIterator[None]:
    """Beats now and then each `period_s` seconds: for heartbeats, not for finding out what happened."""
    while True:
        yield
        await asyncio.sleep(period_s)


class Ids(Protocol):
    """Makes ids."""

    def new(self, prefix: str) -> str:
        """A fresh id: `prefix-` and 26 characters that sort by time of making."""
        ...


class RandomIds:
    """48 bits of time in milliseconds and 80 random bits, in Crockford's base 32."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def new(self, prefix: str) -> str:
        number = (int(self._clock.now().timestamp() * 1000) << 80) | secrets.randbits(80)
        return f"{prefix}-{''.join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))}"
