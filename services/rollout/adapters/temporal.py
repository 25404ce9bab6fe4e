"""The Temporal client, traced; refuses to give up before its deadline while the server is still coming up."""

import asyncio

import stamina
from temporalio.client import Client
from temporalio.contrib.opentelemetry import OpenTelemetryPlugin

from services.kernel.errors import Transient
from services.rollout.adapters.payloads import data_converter


async def connect_temporal(address: str, namespace: str, *, deadline_s: float = 60.0) -> Client:
    """A client whose calls, workflows and activities are traced. Raises Transient after `deadline_s`."""
    # It reads the global provider, which `start_tracing` has set.
    plugins = [OpenTelemetryPlugin(add_temporal_spans=True)]
    try:
        async for attempt in stamina.retry_context(on=RuntimeError, timeout=deadline_s, attempts=None, wait_max=2.0):
            with attempt:
                async with asyncio.timeout(10.0):
                    return await Client.connect(
                        address, namespace=namespace, plugins=plugins, data_converter=data_converter()
                    )
    except (RuntimeError, TimeoutError) as error:
        raise Transient(f"temporal at {address}: {error}") from error
    raise Transient(f"temporal at {address}: no connection within {deadline_s} s")
