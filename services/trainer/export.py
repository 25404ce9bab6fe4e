"""Exporting a policy: its folder is an ordinary Hugging Face directory already, so this is a checked copy.

It refuses to write into a folder that isn't empty.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path

from services.kernel.blobs import Blobs
from services.kernel.errors import InvalidInput

BOOKKEEPING = "manifest.json"


async def export_policy(blobs: Blobs, uri: str, out: Path) -> Path:
    """Copy the policy at `uri` (from PolicyService.ListPolicies) to `out`. Raises InvalidInput, Permanent."""
    if not await asyncio.to_thread(_is_free, out):
        raise InvalidInput("out", str(out), "a folder that is empty or not there yet")
    with tempfile.TemporaryDirectory(prefix="policy-export-") as scratch:
        folder = await blobs.fetch_folder(uri, Path(scratch))
        await asyncio.to_thread(_copy, folder, out)
    return out


def _is_free(out: Path) -> bool:
    return not out.exists() or (out.is_dir() and not any(out.iterdir()))


def _copy(folder: Path, out: Path) -> None:
    shutil.copytree(folder, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns(BOOKKEEPING))
