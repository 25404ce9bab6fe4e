"""A consumer lets records gather after a batch that took long, and never keeps one waiting that came alone."""

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaConnectionError

from services.kernel import broker

TOOK_S = 0.06


class Bench:
    """The consumer above one whose answers are given, with a clock that moves by what is slept and what is worked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: list[Any]) -> None:
        self.now_s, self.slept = 100.0, []
        self.consumer: Any = object.__new__(broker._Consumer)
        self.consumer._closed = True

        async def getmany(_: Any, *partitions: Any, **asked: Any) -> Any:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return {"place": list(range(answer))} if answer else {}

        async def sleep(seconds: float) -> None:
            self.slept.append(round(seconds, 6))
            self.now_s += seconds

        monkeypatch.setattr(AIOKafkaConsumer, "getmany", getmany)
        monkeypatch.setattr(asyncio, "sleep", sleep)
        monkeypatch.setattr(broker, "monotonic", lambda: self.now_s)

    async def batch(self, work_s: float) -> int:
        records = await self.consumer.getmany(max_records=10)
        self.now_s += work_s
        return len(records["place"])


async def test_the_first_batch_and_what_follows_a_full_one_wait_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, [10, 10, 3])
    assert [await bench.batch(TOOK_S) for _ in range(3)] == [10, 10, 3]
    assert bench.slept == [0.0, 0.0, 0.0]


async def test_the_rest_is_some_times_the_work_and_has_a_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, [3, 3, 3])
    for work_s in (0.02, 10.0, 0.0):
        await bench.batch(work_s)
    assert bench.slept == [0.0, 0.06, 0.25]


async def test_what_comes_after_a_while_without_records_is_handed_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, [3, 0, 0, 1, KafkaConnectionError(), 2])
    assert await bench.batch(0.02) == 3
    # The rest is over before the broker is asked; then it waits for as long as nothing comes, and no longer.
    assert (await bench.batch(0.0), bench.slept) == (1, [0.0, 0.06])
    assert (await bench.batch(0.0), bench.slept[2:]) == (2, [0.0, broker._INTERRUPTED_S])
