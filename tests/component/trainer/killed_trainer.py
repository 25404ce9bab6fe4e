"""A process that trains two batches and hangs before the third is committed; whoever starts it kills it there."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from test_trainer_steps import take_batch
from trainer_bench import Bench


async def main(root: Path, model: Path) -> None:
    bench = Bench(root)
    await bench.create(model)
    for number in (1, 2):
        await bench.feed(await take_batch(bench, number))
    third = await take_batch(bench, 3)

    async def never(*_: Any, **__: Any) -> None:
        print("committing", flush=True)
        await asyncio.Event().wait()

    bench.store.append = never
    await bench.feed(third)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
