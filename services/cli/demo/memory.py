"""Samples the resident memory of all processes of an instance, and of this one, while something else runs."""

import asyncio
import os
from pathlib import Path

from services.cli.supervisor import processes

_EVERY_S = 2.0


class MemoryMeter:
    """`peak_mb`: the largest sum so far; pages that processes share count once each process."""

    def __init__(self, instance_dir: Path) -> None:
        self._dir = instance_dir
        self.peak_mb = 0

    async def run(self) -> None:
        """Until cancelled."""
        never = asyncio.Event()
        while True:
            self.peak_mb = max(self.peak_mb, await asyncio.to_thread(self._sample_mb))
            await asyncio.wait([asyncio.ensure_future(never.wait())], timeout=_EVERY_S)

    def _sample_mb(self) -> int:
        pids = [os.getpid(), *(process.pid for process in processes.marked(self._dir))]
        return sum(_rss_bytes(pid) for pid in pids) >> 20


def _rss_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0
