"""gRPC as all services speak it: bearer token, error mapping both ways, deadlines, traces, health and reflection.

Refuses calls without the token (health checks excepted) and never shows a caller a traceback.
"""

import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from opentelemetry.instrumentation.grpc import aio_client_interceptors, aio_server_interceptor

from services.kernel.errors import ForgeError, InvalidInput, from_grpc, grpc_status
from services.kernel.logs import get_logger

AddServicer = Callable[[Any, Any], None]
_MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_UNARY_DEADLINE_S = 30.0
_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.so_reuseport", 0),
)


@dataclass(frozen=True, slots=True)
class RpcSecurity:
    """What both ends share: the bearer token, and PEM files where TLS is wanted."""

    token: str
    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None

    @property
    def metadata(self) -> str:
        """Value of the `authorization` entry."""
        return f"Bearer {self.token}"


class Server:
    """A started server; a part of a process."""

    def __init__(self, server: grpc.aio.Server, port: int, state: health.aio.HealthServicer) -> None:
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
        await self._server.stop(grace=5.0)


class _Names:
    """Stands for the server while servicers are added, to learn their names."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server
        self.names: list[str] = []

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, name: str, handlers: Any) -> None:
        self.names.append(name)
        self._server.add_registered_method_handlers(name, handlers)  # type: ignore[attr-defined]


async def serve(servicers: Sequence[tuple[AddServicer, Any]], bind: str, security: RpcSecurity) -> Server:
    """Start a server on `bind` (host:port; port 0 takes a free one). Raises InvalidInput when the port is taken."""
    interceptors = [aio_server_interceptor(), _Door(security)]
    server = grpc.aio.server(interceptors=interceptors, options=_OPTIONS)
    names, state = _Names(server), health.aio.HealthServicer()
    for add, servicer in (*servicers, (health_pb2_grpc.add_HealthServicer_to_server, state)):
        add(servicer, names)
    reflection.enable_server_reflection((*names.names, reflection.SERVICE_NAME), server)
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


class _Door(grpc.aio.ServerInterceptor):
    """Checks the token and turns errors into statuses."""

    def __init__(self, security: RpcSecurity) -> None:
        self._expected = security.metadata.encode()

    async def intercept_service(self, continuation: Callable[..., Awaitable[Any]], handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        given = dict(handler_call_details.invocation_metadata or ()).get("authorization", "")
        open_to_all = handler_call_details.method.startswith("/grpc.health.v1.Health/")
        if not open_to_all and not hmac.compare_digest(str(given).encode(), self._expected):
            return _refusing(handler)
        if handler.response_streaming:
            wrapped = _guard_stream(handler.unary_stream or handler.stream_stream)
            make = (
                grpc.stream_stream_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_stream_rpc_method_handler
            )
        else:
            wrapped = _guard_unary(handler.unary_unary or handler.stream_unary)
            make = (
                grpc.stream_unary_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_unary_rpc_method_handler
            )
        return make(wrapped, handler.request_deserializer, handler.response_serializer)


def _refusing(handler: Any) -> Any:
    async def refuse(_: Any, call: grpc.aio.ServicerContext[Any, Any]) -> Any:
        await call.abort(grpc.StatusCode.UNAUTHENTICATED, "authorization: no valid bearer token")

    async def refuse_stream(_: Any, call: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        await refuse(_, call)
        yield

    kind = ("stream" if handler.request_streaming else "unary") + (
        "_stream" if handler.response_streaming else "_unary"
    )
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    return make(
        refuse_stream if handler.response_streaming else refuse,
        handler.request_deserializer,
        handler.response_serializer,
    )


async def _abort(call: grpc.aio.ServicerContext[Any, Any], error: Exception) -> None:
    if not isinstance(error, ForgeError):
        get_logger().exception("rpc.failed", error=repr(error))
    await call.abort(
        grpc_status(error), error.message if isinstance(error, ForgeError) else f"internal: {type(error).__name__}"
    )


def _guard_unary(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def guarded(request: Any, call: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await method(request, call)
        except (grpc.aio.AbortError, grpc.RpcError):
            raise
        except Exception as error:
            return await _abort(call, error)

    return guarded


def _guard_stream(method: Callable[..., AsyncIterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
    async def guarded(request: Any, call: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        try:
            async for reply in method(request, call):
                yield reply
        except (grpc.aio.AbortError, grpc.RpcError):
            raise
        except Exception as error:
            await _abort(call, error)

    return guarded


class _Caller:
    """Adds the token to each call, and a deadline to calls with a single answer that have none."""

    def __init__(self, metadata: str, deadline_s: float | None) -> None:
        self._metadata, self._deadline_s = metadata, deadline_s

    async def _intercept(self, continuation: Any, details: grpc.aio.ClientCallDetails, request: Any) -> Any:
        metadata = grpc.aio.Metadata(*(details.metadata or ()), ("authorization", self._metadata))
        timeout = self._deadline_s if details.timeout is None else details.timeout
        return await continuation(details._replace(metadata=metadata, timeout=timeout), request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_unary = intercept_stream_stream = _intercept


class _UnaryUnary(_Caller, grpc.aio.UnaryUnaryClientInterceptor): ...


class _UnaryStream(_Caller, grpc.aio.UnaryStreamClientInterceptor): ...


class _StreamUnary(_Caller, grpc.aio.StreamUnaryClientInterceptor): ...


class _StreamStream(_Caller, grpc.aio.StreamStreamClientInterceptor): ...


def connect(address: str, security: RpcSecurity) -> grpc.aio.Channel:
    """A channel to `host:port` that reconnects for ever; close it when done."""
    kinds = ((_UnaryUnary, _UNARY_DEADLINE_S), (_UnaryStream, None), (_StreamUnary, None), (_StreamStream, None))
    interceptors = [*aio_client_interceptors(), *(kind(security.metadata, deadline_s) for kind, deadline_s in kinds)]
    if security.ca:
        credentials = grpc.ssl_channel_credentials(security.ca.read_bytes())
        return grpc.aio.secure_channel(address, credentials, options=_OPTIONS, interceptors=interceptors)
    return grpc.aio.insecure_channel(address, options=_OPTIONS, interceptors=interceptors)


def to_error(rpc_error: grpc.RpcError) -> ForgeError:
    """The error that a failed call stands for."""
    status: grpc.StatusCode = rpc_error.code()  # type: ignore[attr-defined]
    return from_grpc(status, str(rpc_error.details() or status.name))  # type: ignore[attr-defined]


@contextmanager
def translated() -> Iterator[None]:
    """Inside, failed calls raise ForgeErrors instead of gRPC's own."""
    try:
        yield
    except grpc.RpcError as error:
        raise to_error(error) from error
