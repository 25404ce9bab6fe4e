"""Exporting a policy: its folder is an ordinary Hugging Face directory already, so this is a checked copy.

Where adapters were trained, they stand in it as a peft directory, which is exported by itself. It refuses to write into
a folder that isn't empty.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path

from services.kernel.blobs import Blobs
from services.kernel.errors import InvalidInput

BOOKKEEPING = "manifest.json"
ADAPTER_FOLDER = "adapter"


async def export_policy(blobs: Blobs, uri: str, out: Path, *, adapter: bool = False) -> Path:
    """Copy the policy at `uri` (from PolicyService.ListPolicies), or its adapter, to `out`.

    Raises InvalidInput, Permanent.
    """
    if not await asyncio.to_thread(_is_free, out):
        raise InvalidInput("out", str(out), "a folder that is empty or not there yet")
    with tempfile.TemporaryDirectory(prefix="policy-export-") as scratch:
        folder = await blobs.fetch_folder(uri, Path(scratch))
        if adapter and not await asyncio.to_thread((folder / ADAPTER_FOLDER).is_dir):
            raise InvalidInput("adapter", uri, "a policy of a run with training.lora_rank above 0")
        await asyncio.to_thread(_copy, folder / ADAPTER_FOLDER if adapter else folder, out)
    return out


def _is_free(out: Path) -> bool:
    return not out.exists() or (out.is_dir() and not any(out.iterdir()))


def _copy(folder: Path, out: Path) -> None:
    shutil.copytree(folder, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns(BOOKKEEPING, ADAPTER_FOLDER))
