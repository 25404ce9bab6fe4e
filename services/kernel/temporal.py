"""The Temporal client, traced; refuses to give up before its deadline while the server is still coming up."""

import asyncio
from datetime import timedelta

import stamina
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.contrib.opentelemetry import OpenTelemetryPlugin

from services.kernel.errors import InvalidInput, NotFound, Permanent, Refused, Transient, Unauthenticated
from services.kernel.telemetry import Telemetry

_NEVER_AGAIN = [kind.__name__ for kind in (Permanent, InvalidInput, NotFound, Refused, Unauthenticated)]


async def connect_temporal(address: str, namespace: str, telemetry: Telemetry, *, deadline_s: float = 60.0) -> Client:
    """A client whose calls, workflows and activities are traced. Raises Transient after `deadline_s`."""
    del telemetry  # Its start made it the global provider, which the plugin reads.
    plugins = [OpenTelemetryPlugin(add_temporal_spans=True)]
    try:
        async for attempt in stamina.retry_context(on=RuntimeError, timeout=deadline_s, attempts=None, wait_max=2.0):
            with attempt:
                return await asyncio.wait_for(
                    Client.connect(address, namespace=namespace, plugins=plugins), timeout=10.0
                )
    except (RuntimeError, TimeoutError) as error:
        raise Transient(f"temporal at {address}: {error}") from error
    raise Transient(f"temporal at {address}: no connection within {deadline_s} s")


def retry_policy(*, max_interval_s: float = 10.0, attempts: int = 0) -> RetryPolicy:
    """Retries with backoff of whatever is retryable (errors.is_retryable); `attempts` 0: without end."""
    return RetryPolicy(
        initial_interval=timedelta(milliseconds=200),
        maximum_interval=timedelta(seconds=max_interval_s),
        maximum_attempts=attempts,
        non_retryable_error_types=_NEVER_AGAIN,
    )
