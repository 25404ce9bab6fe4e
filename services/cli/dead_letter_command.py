"""`forgerl dlq`: what consumers could not take, and giving it to them again."""

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, TypeVar

from aiokafka.errors import KafkaError
from rich.console import Console
from rich.table import Table

from services.cli.errors import CommandError, UsageError
from services.cli.supervisor.instance import Instance
from services.kernel.dead_letters import list_dead, replay
from services.kernel.topics import BrokerSettings

T = TypeVar("T")


def _broker(instance_name: str | None) -> BrokerSettings:
    recorded = Instance.named(instance_name).read_state().get("env", {})

    def known(name: str) -> str:
        return os.environ.get(name) or recorded.get(name) or ""

    url, copies = known("FORGERL_KAFKA_URL"), known("FORGERL_KAFKA_REPLICATION") or "1"
    if not url:
        raise UsageError("no broker known: forgerl up, or set FORGERL_KAFKA_URL")
    if not copies.isdecimal() or int(copies) < 1:
        raise UsageError(f"FORGERL_KAFKA_REPLICATION: given {copies!r}; allowed 1 or more")
    return BrokerSettings(url, int(copies))


def _ask(broker: BrokerSettings, question: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(60):
            return await question

    try:
        return asyncio.run(bounded())
    except (KafkaError, TimeoutError, OSError) as error:
        raise CommandError(f"broker at {broker.url} does not answer: {type(error).__name__}") from error


def list_dead_letters(instance_name: str | None, service: str) -> None:
    """Prints one line an event."""
    broker = _broker(instance_name)
    found = _ask(broker, list_dead(broker, service))
    console = Console(highlight=False)
    if not found:
        console.print("forgerl: no dead letters")
        return
    table = Table(box=None)
    for column in ("event", "topic", "consumer", "since", "error"):
        table.add_column(column, overflow="fold")
    for letter in found:
        table.add_row(letter.event_id, letter.topic, letter.consumer, letter.buried_at, letter.error)
    console.print(table)


def replay_dead_letters(instance_name: str | None, service: str) -> None:
    """Publishes them into their topics again."""
    broker = _broker(instance_name)
    count = _ask(broker, replay(broker, service))
    Console(highlight=False).print(f"forgerl: {count} events replayed")
