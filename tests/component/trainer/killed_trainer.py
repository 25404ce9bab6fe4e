"""A process that trains two batches and hangs at a point of the third; whoever starts it kills it there."""

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

from test_trainer_steps import take_batch
from trainer_bench import Bench


async def main(root: Path, model: Path, point: str) -> None:
    bench = Bench(root)
    await bench.create(model)
    for number in (1, 2):
        await bench.feed(await take_batch(bench, number))
    third = await take_batch(bench, 3)
    {"saving": hang_while_saving, "publishing": hang_while_publishing, "committing": hang_before_commit}[point](bench)
    await bench.feed(third)


def hang_while_saving(bench: Bench) -> None:
    """The workspace has weights and no optimiser."""
    learner: Any = bench.training._learner
    save = learner.save

    def torn(folder: Path) -> None:
        save(folder)
        for path in (folder / "optimiser").iterdir():
            path.write_bytes(path.read_bytes()[:10])
        print("saving", flush=True)
        threading.Event().wait()

    learner.save = torn


def hang_while_publishing(bench: Bench) -> None:
    """The checkpoint is whole; the policy's folder has files and no manifest."""
    blobs: Any = bench.blobs
    write = blobs._write

    async def never(key: str, data: bytes) -> None:
        if not key.endswith("manifest.json") or "/000003-" not in key:
            await write(key, data)
            return
        print("publishing", flush=True)
        await asyncio.Event().wait()

    blobs._write = never


def hang_before_commit(bench: Bench) -> None:
    """Checkpoint and policy are whole; no event names them."""

    async def never(*_: Any, **__: Any) -> None:
        print("committing", flush=True)
        await asyncio.Event().wait()

    bench.store.append = never


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
