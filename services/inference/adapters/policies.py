"""Policies from the blob store as local folders, and what is left of old ones. Refuses incomplete folders."""

import asyncio
import shutil
from pathlib import Path

from services.inference.domain.policies import Policy
from services.kernel.blobs import Blobs


class StoredPolicies:
    """`cache` takes the copies where the store isn't local; `pool` is the KV pool's folder, or None."""

    def __init__(self, blobs: Blobs, cache: Path, pool: Path | None) -> None:
        self._blobs, self._cache, self._pool = blobs, cache, pool

    async def fetch(self, policy: Policy) -> str:
        """See ports.Policies."""
        return str(await self._blobs.fetch_folder(policy.uri, self._cache / policy.digest))

    async def prune(self, keep: frozenset[str]) -> None:
        """See ports.Policies."""
        await asyncio.to_thread(self._prune, keep)

    def _prune(self, keep: frozenset[str]) -> None:
        if self._cache.is_dir():
            for folder in self._cache.iterdir():
                if folder.name not in keep:
                    shutil.rmtree(folder, ignore_errors=True)
        if self._pool is not None and self._pool.is_dir():
            for path in self._pool.iterdir():
                if _salt(path.name) not in keep:
                    path.unlink(missing_ok=True)


def _salt(name: str) -> str:
    # LMCache's file tier names a block `<model>@…@<hash>@<salt>.data`.
    return name.removesuffix(".data").rpartition("@")[2]
