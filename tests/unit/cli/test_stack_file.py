"""The shipped stack file, and how a stack file is refused."""

from pathlib import Path

import pytest

from services.cli.errors import UsageError
from services.cli.supervisor.instance import CHECKOUT, Instance
from services.cli.supervisor.ports import PortBook
from services.cli.supervisor.stack_file import Resolver, read_stack_file, resolve, select

SHIPPED = CHECKOUT / "deploy" / "stack.yaml"


def shipped(engines: int = 1, environ: dict[str, str] | None = None, only: tuple[str, ...] = ()):
    environ = environ or {}
    file = read_stack_file(SHIPPED)
    book = PortBook({}, environ)
    variables = {"engines": str(engines), "model": "/m", "FORGERL_TOKEN": "t", "FORGERL_SECRET": "s"}
    resolver = Resolver(Instance("x", Path("/i/x")), variables, book.port_of)
    return {child.name: child for child in resolve(file, select(file, only, environ), resolver, environ)}, book.ports


def test_the_shipped_stack_is_complete_and_no_place_is_left_open():
    children, ports = shipped()
    assert list(children) == [
        *("broker", "temporal", "kv-pool", "engine", "inference", "gateway", "scheduler", "rollout", "router"),
        *("reward", "trainer"),
    ]
    assert len(set(ports.values())) == len(ports)
    for child in children.values():
        assert "${" not in " ".join([*child.command, *child.env.values(), child.health.target if child.health else ""])
        assert child.env["FORGERL_KAFKA_URL"] == f"127.0.0.1:{ports['broker']}"
        assert child.env["FORGERL_DATA_DIR"] == "/i/x"


def test_two_engines_have_a_sidecar_and_ports_each():
    children, ports = shipped(engines=2)
    assert children["engine-2"].env["FORGERL_ENGINE_PORT"] == str(ports["engine-2"])
    assert children["inference-2"].env["FORGERL_INFERENCE_ENGINE_URL"] == f"http://127.0.0.1:{ports['engine-2']}"
    assert children["inference-1"].env["FORGERL_INFERENCE_WORKER_ID"] == "engine-1"
    assert ports["engine-1"] != ports["engine-2"]
    assert children["gateway"].outlived_by == ("broker", "router", "inference-1", "inference-2", "engine-1", "engine-2")


def test_an_external_broker_is_taken_and_none_is_started():
    children, ports = shipped(environ={"FORGERL_KAFKA_URL": "kafka.example:9092"})
    assert "broker" not in children and "broker" not in ports
    assert children["gateway"].env["FORGERL_KAFKA_URL"] == "kafka.example:9092"
    assert children["gateway"].depends_on == ()


def test_only_keeps_the_dependencies_among_those_that_run():
    children, _ = shipped(only=("temporal", "rollout"))
    assert list(children) == ["temporal", "rollout"]
    assert children["rollout"].depends_on == ("temporal",)


def test_an_unknown_child_is_named_with_what_is_allowed():
    with pytest.raises(UsageError, match="--only: unknown 'broke'; allowed broker, temporal"):
        shipped(only=("broke",))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("children: {a: {command: [x], helth: {}}}", r"children\.a\.helth: Extra inputs are not permitted"),
        ("children: {a: {command: []}}", r"children\.a\.command: Tuple should have at least 1 item"),
        ("children: [", "not YAML"),
        (
            "children: {a: {command: [x], health: {kind: udp, target: y}}}",
            r"children\.a\.health\.kind: Input should be",
        ),
    ],
)
def test_a_bad_file_is_one_line_that_names_the_place(tmp_path, text, says):
    path = tmp_path / "stack.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=says) as raised:
        read_stack_file(path)
    assert str(path) in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("children: {a: {command: [x], depends_on: [b]}}", "a depends on unknown 'b'"),
        (
            "children: {a: {command: [x], depends_on: [b]}, b: {command: [x], uses: [a]}}",
            "circular dependency among a, b",
        ),
        ("children: {a: {command: ['${nobody}']}}", r"unknown place \$\{nobody\}; allowed dir, instance"),
    ],
)
def test_a_file_that_does_not_hang_together_is_refused(tmp_path, text, says):
    path = tmp_path / "stack.yaml"
    path.write_text(text)
    file = read_stack_file(path)
    resolver = Resolver(Instance("x", tmp_path), {}, PortBook({}, {}).port_of)
    with pytest.raises(UsageError, match=says):
        resolve(file, select(file, (), {}), resolver, {})


def test_ports_are_kept_while_they_are_free():
    book = PortBook({"a": 20123, "b": 20123}, {})
    assert book.port_of("a") == 20123 == book.port_of("a")
    assert book.port_of("b") != 20123
    assert 15_000 <= PortBook({}, {}).port_of("c") < 32_000


@pytest.mark.parametrize("given", ["http", "0", "70000"])
def test_a_fixed_port_must_be_a_port(given):
    with pytest.raises(UsageError, match="FORGERL_PORT_GATEWAY_HTTP: given"):
        PortBook({}, {"FORGERL_PORT_GATEWAY_HTTP": given}).port_of("gateway-http")


def test_a_machine_without_a_free_port_says_so(monkeypatch):
    monkeypatch.setattr("services.cli.supervisor.ports.is_free", lambda port: False)
    with pytest.raises(UsageError, match="no port is free from 15000 to 31999: FORGERL_PORT_… names others"):
        PortBook({}, {}).port_of("gateway")
