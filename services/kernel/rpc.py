"""gRPC as all services speak it: bearer token, error mapping both ways, deadlines, traces, health and reflection.

Refuses calls without the token (health checks excepted) and never shows a caller a traceback.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import hmac
import inspect
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc
from opentelemetry.instrumentation.grpc import aio_client_interceptors, aio_server_interceptor, filters

from services.kernel.errors import ForgeError, InvalidInput, Unauthenticated, from_grpc, grpc_status
from services.kernel.logs import get_logger

AddServicer = Callable[[Any, Any], None]
_MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_UNARY_DEADLINE_S = 30.0
_DRAIN_S = 5.0
_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES), ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 20_000), ("grpc.keepalive_timeout_ms", 10_000), ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000), ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1_000),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RpcSecurity:
    """What both ends share: the bearer token, and PEM files where TLS is wanted."""

    token: str = field(repr=False)
    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None

    @property
    def authorization(self) -> str:
        """Value of the metadata entry of that name."""
        return f"Bearer {self.token}"


class Server:
    """A started server; a part of a process."""

    def __init__(self, server: grpc.aio.Server, port: int, state: Any) -> None:
        self._server, self._state = server, state
        self.port = port

    async def run(self) -> None:
        """Serve until cancelled, then let calls under way finish for a few seconds."""
        try:
            await self._server.wait_for_termination()
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Refuse new calls, finish those under way."""
        await self._state.enter_graceful_shutdown()
        await self._server.stop(grace=_DRAIN_S)


async def serve(servicers: Sequence[tuple[AddServicer, Any]], bind: str, security: RpcSecurity) -> Server:
    """Start a server on `bind` (host:port; port 0 takes a free one). Raises InvalidInput when the port is taken."""
    # A watch that its caller cancels is closed by the loop in a context of its own: no span can be detached there.
    traced = aio_server_interceptor(filter_=filters.negate(filters.method_prefix("Watch")))
    server = grpc.aio.server(interceptors=[traced], options=_OPTIONS)
    untyped: Any = health
    names, state = _Names(server), untyped.aio.HealthServicer()
    for add, servicer in servicers:
        add(_Guarded(servicer, security), names)
    health_pb2_grpc.add_HealthServicer_to_server(state, names)
    reflecting = reflection.aio.ReflectionServicer([*names.names, reflection.SERVICE_NAME])
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(_Guarded(reflecting, security), server)
    try:
        if security.certificate and security.key:
            pair = (security.key.read_bytes(), security.certificate.read_bytes())
            port = server.add_secure_port(bind, grpc.ssl_server_credentials([pair]))
        else:
            port = server.add_insecure_port(bind)
    except (RuntimeError, OSError) as error:
        raise InvalidInput("bind", bind, f"an address that is free ({error})") from error
    await server.start()
    for name in ("", *names.names):
        await state.set(name, health_pb2.HealthCheckResponse.SERVING)
    return Server(server, port, state)


class _Names:
    """Stands for the server while servicers are added, to learn their names."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.names: list[str] = []

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, name: str, handlers: Any) -> None:
        self.names.append(name)
        self._server.add_registered_method_handlers(name, handlers)


class _Guarded:
    """A servicer whose methods ask for the token first and end with a status instead of an exception."""

    def __init__(self, servicer: Any, security: RpcSecurity) -> None:
        self._servicer, self._expected = servicer, security.authorization.encode()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._servicer, name)

        async def one(request: Any, call: Any) -> Any:
            with _errors() as failed:
                self._admit(call)
                return await method(request, call)
            return await call.abort(*failed)

        async def many(request: Any, call: Any) -> AsyncIterator[Any]:
            with _errors() as failed:
                self._admit(call)
                async for reply in method(request, call):
                    yield reply
                return
            await call.abort(*failed)

        return many if inspect.isasyncgenfunction(method) else one

    def _admit(self, call: Any) -> None:
        given = dict(call.invocation_metadata() or ()).get("authorization", "")
        if not hmac.compare_digest(str(given).encode(), self._expected):
            raise Unauthenticated("authorization: no valid bearer token")


@contextmanager
def _errors() -> Generator[list[Any]]:
    failed: list[Any] = []
    try:
        yield failed
    except (grpc.aio.AbortError, grpc.RpcError):
        raise
    except ForgeError as error:
        failed += [grpc_status(error), error.message]
    except Exception as error:
        get_logger().exception("rpc.failed", error=repr(error))
        failed += [grpc_status(error), f"internal: {type(error).__name__}"]


class _Caller:
    """Adds the token to each call, and a deadline to calls with a single answer that have none."""

    def __init__(self, authorization: str, deadline_s: float | None) -> None:
        self._authorization, self._deadline_s = authorization, deadline_s

    async def _intercept(self, continuation: Any, details: Any, request: Any) -> Any:
        metadata = grpc.aio.Metadata(*(details.metadata or ()), ("authorization", self._authorization))
        timeout = self._deadline_s if details.timeout is None else details.timeout
        return await continuation(details._replace(metadata=metadata, timeout=timeout), request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_unary = intercept_stream_stream = _intercept


# gRPC asks for the class of an interceptor, and for one class a kind of call.
class _UnaryUnary(_Caller, grpc.aio.UnaryUnaryClientInterceptor): ...


class _UnaryStream(_Caller, grpc.aio.UnaryStreamClientInterceptor): ...


class _StreamUnary(_Caller, grpc.aio.StreamUnaryClientInterceptor): ...


class _StreamStream(_Caller, grpc.aio.StreamStreamClientInterceptor): ...


def connect(address: str, security: RpcSecurity) -> grpc.aio.Channel:
    """A channel to `host:port` that reconnects for ever; close it when done."""
    kinds = ((_UnaryUnary, _UNARY_DEADLINE_S), (_UnaryStream, None), (_StreamUnary, None), (_StreamStream, None))
    own: list[Any] = [kind(security.authorization, deadline_s) for kind, deadline_s in kinds]
    interceptors = [*aio_client_interceptors(), *own]
    if security.ca:
        credentials = grpc.ssl_channel_credentials(security.ca.read_bytes())
        return grpc.aio.secure_channel(address, credentials, options=_OPTIONS, interceptors=interceptors)
    return grpc.aio.insecure_channel(address, options=_OPTIONS, interceptors=interceptors)


def to_error(rpc_error: grpc.RpcError) -> ForgeError:
    """The error that a failed call stands for."""
    call: Any = rpc_error
    return from_grpc(call.code(), str(call.details() or call.code().name))


@contextmanager
def translated() -> Generator[None]:
    """Inside, failed calls raise ForgeErrors instead of gRPC's own."""
    try:
        yield
    except grpc.RpcError as error:
        raise to_error(error) from error
