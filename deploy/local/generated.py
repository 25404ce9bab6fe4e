"""Writes proto/gen from the protos; with --check only says whether it is up to date.

Needs grpcio-tools 1.78: stubs of later ones don't load beside the engine's protobuf.
"""

import filecmp
import os
import shutil
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[2]
PROTO, GEN = ROOT / "proto", ROOT / "proto" / "gen"


def generate(out: Path) -> None:
    """Ends with protoc's own words when a proto is wrong."""
    # protoc looks for the typed stubs' plug-ins on the path.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    import grpc_tools

    files = sorted(str(path.relative_to(PROTO)) for path in (PROTO / "forgerl").rglob("*.proto"))
    outs = [f"--{kind}={out}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
    outs.append(f"--mypy_grpc_out=quiet:{out}")
    include = Path(grpc_tools.__file__).parent / "_proto"
    if protoc.main(["protoc", f"-I{PROTO}", f"-I{include}", *outs, *files]):
        sys.exit(1)


def differences(fresh: Path) -> list[str]:
    """Generated files that differ, are missing or have no proto any more."""
    names = {path.relative_to(root) for root in (fresh, GEN) for path in root.rglob("*_pb2*.py*")}
    names = {name for name in names if "__pycache__" not in name.parts}
    return sorted(
        str(name)
        for name in names
        if not ((fresh / name).is_file() and (GEN / name).is_file() and filecmp.cmp(fresh / name, GEN / name, False))
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        stale = differences(Path(folder))
        if "--check" in sys.argv[1:]:
            if stale:
                sys.exit("proto/gen is out of date (make proto): " + ", ".join(stale))
            return
        for name in stale:
            target = GEN / name
            if (Path(folder) / name).is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(Path(folder) / name, target)
            else:
                target.unlink()


if __name__ == "__main__":
    main()
