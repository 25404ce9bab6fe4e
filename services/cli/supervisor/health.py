"""Asks a child whether it serves: for the supervisor, and as `python -m services.cli.supervisor.health KIND TARGET`.

The command is what containers are asked with; it exits 0 for yes. Refuses to decide what follows from the answer.
"""

import asyncio
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from services.cli.errors import CommandError, UsageError

_ONE_TRY_S = 3.0


class Asked(Protocol):
    """Whom to ask and how; a `Health` of the stack file is one."""

    @property
    def kind(self) -> str: ...
    @property
    def target(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Door:
    """An `Asked` from a command line."""

    kind: str
    target: str


@dataclass(frozen=True, slots=True)
class Tls:
    """How a gRPC server's certificate is verified: against `ca` (PEM), or the system's own when that is empty."""

    ca: bytes = b""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Tls | None":
        """None where gRPC is in the clear. Raises UsageError for a CA that can't be read."""
        if path := environ.get("FORGERL_TLS_CA"):
            try:
                return cls(Path(path).read_bytes())
            except OSError as error:
                raise UsageError(f"FORGERL_TLS_CA: given {path}; allowed a PEM file ({error.strerror})") from error
        return cls() if environ.get("FORGERL_TLS_CERTIFICATE") else None


class HealthProbe:
    """One question at a time; False for every kind of no, never an exception."""

    def __init__(self, token: str, tls: Tls | None = None) -> None:
        self._token, self._tls = token, tls

    async def is_healthy(self, asked: Asked) -> bool:
        kinds = {"tcp": self._tcp, "http": self._http, "grpc": self._grpc, "plain-grpc": self._plain_grpc}
        ask = kinds[asked.kind]
        try:
            async with asyncio.timeout(_ONE_TRY_S):
                return await ask(asked.target)
        except (OSError, TimeoutError):
            return False

    async def _tcp(self, target: str) -> bool:
        host, _, port = target.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        return True

    async def _http(self, target: str) -> bool:
        def get() -> bool:
            try:
                with urllib.request.urlopen(target, timeout=_ONE_TRY_S) as answer:
                    return 200 <= answer.status < 300
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                return False

        return await asyncio.to_thread(get)

    async def _plain_grpc(self, target: str) -> bool:
        return await self._ask_grpc(target, None)

    async def _grpc(self, target: str) -> bool:
        return await self._ask_grpc(target, self._tls)

    async def _ask_grpc(self, target: str, tls: Tls | None) -> bool:
        import grpc
        from grpc_health.v1 import health_pb2, health_pb2_grpc

        # Until somebody listens there's no need to build a channel: it would only collect reconnect timers.
        await self._tcp(target)
        if tls:
            made = grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(tls.ca or None))
        else:
            made = grpc.aio.insecure_channel(target)
        async with made as channel:
            try:
                check = health_pb2_grpc.HealthStub(channel).Check  # type: ignore[attr-defined]
                answer = await check(
                    health_pb2.HealthCheckRequest(),
                    timeout=_ONE_TRY_S,
                    metadata=(("authorization", f"Bearer {self._token}"),),
                )
            except grpc.aio.AioRpcError:
                return False
        return answer.status == health_pb2.HealthCheckResponse.SERVING


def main() -> None:
    """Exit code 0: healthy; 1: not; 2: asked wrongly."""
    if len(sys.argv) != 3 or sys.argv[1] not in ("tcp", "http", "grpc", "plain-grpc"):
        sys.stderr.write("usage: python -m services.cli.supervisor.health tcp|http|grpc|plain-grpc TARGET\n")
        sys.exit(2)
    try:
        probe = HealthProbe(os.environ.get("FORGERL_TOKEN", ""), Tls.of(os.environ))
    except CommandError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
    sys.exit(0 if asyncio.run(probe.is_healthy(Door(sys.argv[1], sys.argv[2]))) else 1)


if __name__ == "__main__":
    main()
