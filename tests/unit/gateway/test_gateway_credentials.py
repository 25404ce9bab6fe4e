"""Keys of agents."""

from datetime import UTC, datetime

import jwt
import pytest
from clocks import ManualClock

from services.gateway.adapters.credentials import Credentials
from services.gateway.records import pack_ids, unpack_ids
from services.kernel.clock import RandomIds
from services.kernel.errors import Unauthenticated

SECRET = "a-secret-that-is-long-enough-for-hs256"


def test_a_key_speaks_for_its_episode_until_it_expires():
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    credentials = Credentials(SECRET, 60.0, clock, RandomIds(clock))
    key = credentials.issue("ep-1", "r1")
    assert credentials.episode_of(key.api_key) == "ep-1"
    assert key.expires_at == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    # What an error or a log line shows of it can't be used.
    assert key.api_key not in f"{key!r} {key}"
    clock.advance(59.9)
    assert credentials.episode_of(key.api_key) == "ep-1"
    clock.advance(0.2)
    with pytest.raises(Unauthenticated, match="expired"):
        credentials.episode_of(key.api_key)


def test_keys_signed_otherwise_unsigned_or_incomplete_are_refused():
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    credentials = Credentials(SECRET, 60.0, clock, RandomIds(clock))
    claims = {"sub": "ep-1", "run": "r1", "exp": 4_000_000_000}
    bad = [
        jwt.encode(claims, SECRET + "x", algorithm="HS256"),
        jwt.encode(claims, "", algorithm="none"),
        jwt.encode({"sub": "ep-1", "exp": 4_000_000_000}, SECRET, algorithm="HS256"),
        jwt.encode({"run": "r1", "sub": "ep-1"}, SECRET, algorithm="HS256"),
        "nonsense",
        "",
    ]
    for key in bad:
        with pytest.raises(Unauthenticated) as refused:
            credentials.episode_of(key)
        assert "signature" not in refused.value.message.lower()


def test_ids_are_little_endian_uint32():
    assert pack_ids([1, 258, 4_294_967_295]) == b"\x01\0\0\0\x02\x01\0\0\xff\xff\xff\xff"
    assert unpack_ids(pack_ids([1, 258, 4_294_967_295])) == (1, 258, 4_294_967_295)
