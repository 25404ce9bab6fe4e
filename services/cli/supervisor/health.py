"""Asks a child whether it serves. Refuses to decide what follows from the answer."""

import asyncio
import urllib.error
import urllib.request

from services.cli.supervisor.stack_file import Health

_ONE_TRY_S = 3.0


class HealthProbe:
    """One question at a time; False for every kind of no, never an exception."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def is_healthy(self, health: Health) -> bool:
        ask = {"tcp": self._tcp, "http": self._http, "grpc": self._grpc}[health.kind]
        try:
            async with asyncio.timeout(_ONE_TRY_S):
                return await ask(health.target)
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

    async def _grpc(self, target: str) -> bool:
        import grpc
        from grpc_health.v1 import health_pb2, health_pb2_grpc

        # Until somebody listens there's no need to build a channel: it would only collect reconnect timers.
        await self._tcp(target)
        async with grpc.aio.insecure_channel(target) as channel:
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
