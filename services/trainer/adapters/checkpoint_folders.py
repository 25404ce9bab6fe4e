"""Checkpoints as local folders: written beside, synced, renamed, and covered by a manifest of sha256s.

Layout: ROOT/<run>/step-<number>-<first 12 of the manifest's sha256>. It refuses a folder whose files don't fit its
manifest, or whose manifest isn't the one that an event names.
"""

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

from services.trainer.domain.refusal import StepRefused
from services.trainer.ports import Checkpoint

MANIFEST = "checkpoint.json"
WORKSPACE_PREFIX = "tmp-"


class CheckpointFolders:
    """See ports.Checkpoints."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def workspace(self, run_id: str) -> Path:
        """See Checkpoints.workspace."""
        run = self._root / run_id
        run.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=WORKSPACE_PREFIX, dir=run))

    def commit(self, run_id: str, step: int, workspace: Path) -> Checkpoint:
        """See Checkpoints.commit."""
        files = {
            path.relative_to(workspace).as_posix(): digest(path)
            for path in sorted(workspace.rglob("*"))
            if path.is_file()
        }
        manifest = json.dumps(
            {"run_id": run_id, "step": step, "last_batch": step, "files": files}, indent=1, sort_keys=True
        )
        (workspace / MANIFEST).write_text(manifest)
        sha256 = hashlib.sha256(manifest.encode()).hexdigest()
        for path in workspace.rglob("*"):
            sync(path)
        sync(workspace)
        final = self._root / run_id / f"step-{step:06d}-{sha256[:12]}"
        if final.exists():
            shutil.rmtree(workspace)
        else:
            workspace.rename(final)
        sync(final.parent)
        return Checkpoint(uri_of(final), sha256)

    def open(self, checkpoint: Checkpoint) -> Path:
        """See Checkpoints.open."""
        folder = Path(checkpoint.uri.removeprefix("file://"))
        manifest = folder / MANIFEST
        if not manifest.is_file():
            raise StepRefused(f"checkpoint {checkpoint.uri} is missing")
        text = manifest.read_bytes()
        if hashlib.sha256(text).hexdigest() != checkpoint.sha256:
            raise StepRefused(f"checkpoint {checkpoint.uri}: its manifest is not the one that was committed")
        for name, expected in json.loads(text)["files"].items():
            if not (folder / name).is_file() or digest(folder / name) != expected:
                raise StepRefused(f"checkpoint {checkpoint.uri}: {name} is missing or corrupt")
        return folder

    def keep_only(self, run_id: str, uris: set[str]) -> int:
        """See Checkpoints.keep_only."""
        freed = 0
        run = self._root / run_id
        for folder in sorted(run.iterdir()) if run.is_dir() else []:
            if uri_of(folder) not in uris:
                freed += sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
                shutil.rmtree(folder, ignore_errors=True)
        if run.is_dir() and not uris:
            shutil.rmtree(run, ignore_errors=True)
        return freed


def uri_of(folder: Path) -> str:
    """A local folder's uri."""
    return f"file://{folder.absolute()}"


def digest(path: Path) -> str:
    """sha256 of a file."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def sync(path: Path) -> None:
    """Force a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
