"""Names a black box's calls, so that a call that is sent again is known as the same one and sampled once.

It refuses to judge equal calls as repeats: only an SDK's retry header, or this box's own second try, makes one.
"""

import hashlib
from collections.abc import MutableMapping
from dataclasses import dataclass, field

from services.rollout.inside.wire import Request

RETRY_HEADER = "x-stainless-retry-count"


@dataclass(slots=True)
class CallKeys:
    """Idempotency keys: digest of the call and its number among equal ones."""

    seen: MutableMapping[str, int] = field(default_factory=dict[str, int])

    def key_of(self, request: Request) -> str:
        """The key under which to send a call; the client's own where it has one."""
        own = request.header("idempotency-key")
        if own:
            return own
        content = request.method.encode() + b" " + request.path.encode() + b"\n" + request.body
        digest = hashlib.sha256(content).hexdigest()[:24]
        retry = request.header(RETRY_HEADER)
        if not (retry.isdigit() and int(retry) > 0 and digest in self.seen):
            self.seen[digest] = self.seen.get(digest, 0) + 1
        return f"{digest}-{self.seen[digest]}"
