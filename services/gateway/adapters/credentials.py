"""Keys of agents: signed, scoped to one episode, expiring. The engine's own keys never leave the fleet.

It refuses keys that are expired, signed otherwise, or say nothing of an episode; it keeps no list of keys.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import jwt

from services.kernel.clock import Clock, Ids
from services.kernel.errors import Unauthenticated

_ALGORITHM = "HS256"


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A key and when it ends."""

    # Not in what an error or a log line shows of it.
    api_key: str = field(repr=False)
    expires_at: datetime


class Credentials:
    """Issues and checks keys; the comparison of signatures takes constant time (PyJWT uses hmac.compare_digest)."""

    def __init__(self, secret: str, lifetime_s: float, clock: Clock, ids: Ids) -> None:
        self._secret, self._lifetime_s, self._clock, self._ids = secret, lifetime_s, clock, ids

    def issue(self, episode_id: str, run_id: str) -> IssuedKey:
        """A key for the episode's calls."""
        expires_at = self._clock.now() + timedelta(seconds=self._lifetime_s)
        claims = {"sub": episode_id, "run": run_id, "exp": expires_at, "jti": self._ids.new("key")}
        return IssuedKey(jwt.encode(claims, self._secret, algorithm=_ALGORITHM), expires_at)

    def episode_of(self, api_key: str) -> str:
        """The episode that a key speaks for. Raises Unauthenticated, without saying why a signature failed."""
        try:
            claims = jwt.decode(
                api_key,
                self._secret,
                algorithms=[_ALGORITHM],
                options={"require": ["sub", "exp", "run"], "verify_exp": False},
            )
        except jwt.PyJWTError:
            raise Unauthenticated("api key: given one that is not valid here; allowed the episode's own key") from None
        if self._clock.now().timestamp() >= float(claims["exp"]):
            raise Unauthenticated("api key: given one that has expired; allowed the episode's own key")
        return str(claims["sub"])
