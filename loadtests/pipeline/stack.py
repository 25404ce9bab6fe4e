"""The processes under test, on ports and folders of their own. It refuses to share anything with another stack."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import psutil

TOKEN, SECRET = "loadtest-token", "loadtest-secret-that-is-long-enough"
READY = b"service.ready"
SERVICES = ("gateway", "scheduler", "reward")
START_S = 90.0


def free_port() -> int:
    """A port that nothing listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(slots=True)
class Program:
    """One process that may be killed and started again; `cpu_before_s`: spent by its dead predecessors."""

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    cpu_before_s: float = 0.0
    peak_before_bytes: int = 0

    def start(self) -> None:
        """Start it, in a process group of its own."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """kill -9, its children too."""
        if self.process is None:
            return
        self.cpu_before_s, self.peak_before_bytes = self.cpu_s(), self.peak_bytes()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(20)
        self.process = None

    def cpu_s(self) -> float:
        """CPU seconds of all its lives."""
        if self.process is None or self.process.poll() is not None:
            return self.cpu_before_s
        spent = psutil.Process(self.process.pid).cpu_times()
        return self.cpu_before_s + spent.user + spent.system

    def peak_bytes(self) -> int:
        """The largest memory (resident) that it ever had."""
        if self.process is None or self.process.poll() is not None:
            return self.peak_before_bytes
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")), "0")
        return max(self.peak_before_bytes, 1024 * int(found))

    def starts(self) -> int:
        """How often it said that it is ready."""
        return self.log.read_bytes().count(READY) if self.log.exists() else 0

    async def ready(self, times: int = 1) -> None:
        """Wait until it has said so `times` times. Raises RuntimeError when it died."""
        async with asyncio.timeout(START_S):
            while self.starts() < times:
                if self.process is not None and self.process.poll() is not None:
                    raise RuntimeError(f"{self.name} ended: {self.log.read_text()[-2000:]}")
                await asyncio.sleep(0.1)


@dataclass(slots=True)
class Stack:
    """Broker and services under `folder`; every service keeps its store in `folder`/stores."""

    folder: Path
    kind: str
    kafka_port: int = field(default_factory=free_port)
    gateway_port: int = field(default_factory=free_port)
    temporal_port: int = field(default_factory=free_port)
    programs: dict[str, Program] = field(default_factory=dict[str, Program])

    @property
    def kafka_url(self) -> str:
        """Where the broker listens."""
        return f"127.0.0.1:{self.kafka_port}"

    @property
    def blob_url(self) -> str:
        """The blob store that all share."""
        return f"file://{self.folder}/blobs"

    def environment(self) -> dict[str, str]:
        """What every service is told."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FORGERL_")}
        return kept | {
            "OMP_NUM_THREADS": "1",
            "FORGERL_DATA_DIR": str(self.folder),
            "FORGERL_KAFKA_URL": self.kafka_url,
            "FORGERL_TOKEN": TOKEN,
            "FORGERL_SECRET": SECRET,
            "FORGERL_GATEWAY_BIND": f"127.0.0.1:{self.gateway_port}",
            "FORGERL_GATEWAY_HTTP_BIND": f"127.0.0.1:{free_port()}",
            "FORGERL_GATEWAY_ADDRESS": f"127.0.0.1:{self.gateway_port}",
            "FORGERL_SCHEDULER_BIND": f"127.0.0.1:{free_port()}",
            "FORGERL_REWARD_HEALTH_BIND": f"127.0.0.1:{free_port()}",
            "FORGERL_ROLLOUT_HEALTH_BIND": f"127.0.0.1:{free_port()}",
            "FORGERL_TEMPORAL_ADDRESS": f"127.0.0.1:{self.temporal_port}",
            # Recorded episodes call no tools.
            "FORGERL_ROLLOUT_SANDBOX": "none",
            "FORGERL_ROLLOUT_SANDBOX_POOL": "1",
        }

    def add(self, name: str, command: list[str], environment: dict[str, str] | None = None) -> Program:
        """Start one more process under a name."""
        program = Program(name, command, environment or self.environment(), self.folder / f"{name}.log")
        self.programs[name] = program
        program.start()
        return program

    async def start(self) -> None:
        """Broker, then the three services; they are ready once rollout's and the trainer's topics are there too."""
        self.folder.mkdir(parents=True, exist_ok=True)
        own = {name: value for name, value in os.environ.items() if self.kind == "kafka" or name != "KAFKA_HOME"}
        module = [sys.executable, "-m", "services.cli.backends.broker", "--port", str(self.kafka_port)]
        ports = ["--controller-port", str(free_port()), "--dir", str(self.folder / "broker")]
        self.add("broker", [*module, *ports], own)
        await self._answers(self.kafka_port)
        for name in SERVICES:
            self.add(name, service_command(name))

    async def ready(self) -> None:
        """Wait for the three services."""
        for name in SERVICES:
            await self.programs[name].ready()

    async def start_temporal(self) -> None:
        """The Temporal development server, with its state in a file."""
        server = Path(sys.executable).with_name("temporal")
        command = [str(server), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "error"]
        command += ["--port", str(self.temporal_port), "--db-filename", str(self.folder / "temporal.db")]
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL"):
            command += ["--sqlite-pragma", pragma]
        self.add("temporal", command)
        await self._answers(self.temporal_port)

    def stop(self) -> None:
        """kill -9 all of it."""
        for program in reversed(self.programs.values()):
            program.kill()

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds by process, this one too."""
        own = psutil.Process().cpu_times()
        return {"loadtest": own.user + own.system} | {name: one.cpu_s() for name, one in self.programs.items()}

    async def _answers(self, port: int) -> None:
        async with asyncio.timeout(START_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.1)
                else:
                    writer.close()
                    return


def service_command(name: str) -> list[str]:
    """How a service is started."""
    return [sys.executable, "-m", f"services.{name}"]
