"""Refuses to start a stack that would soon stand still for want of disk. It doesn't watch the disk afterwards."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from services.cli.errors import UsageError

FREE_DISK_MB = 1024
"""What a short run needs: stores, blobs, the engines' pool of KV and the logs."""


def check_free_disk(folder: Path, environ: Mapping[str, str]) -> None:
    """Raise UsageError naming the place: the instance's folder, or a local blob store elsewhere."""
    blobs = environ.get("FORGERL_BLOB_URL", "")
    places = [folder, *([Path(blobs.removeprefix("file://"))] if blobs.startswith("file://") else [])]
    for place in places:
        existing = next(parent for parent in (place, *place.absolute().parents) if parent.exists())
        free_mb = shutil.disk_usage(existing).free // 2**20
        if free_mb < FREE_DISK_MB:
            raise UsageError(f"disk full: {free_mb} MB free at {place}; at least {FREE_DISK_MB} MB allowed")
