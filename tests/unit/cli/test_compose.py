"""docker-compose.yml runs what deploy/stack.yaml runs: same programs, same settings, same order."""

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
    assert set(COMPOSE["services"]) - set(STACK.children) == {"postgres", "otel-collector"}


@pytest.mark.parametrize("name", OWN)
def test_the_same_program_with_the_same_settings(name):
    child, container = STACK.children[name], COMPOSE["services"][name]
    assert container["command"] == ["python", *child.command[1:]]
    wanted = {*STACK.env, *child.env}
    assert wanted <= set(container["environment"]), wanted - set(container["environment"])
    for key, value in {**STACK.env, **child.env}.items():
        if not re.search(r"\$\{|127\.0\.0\.1", value):
            assert str(container["environment"][key]) == value


@pytest.mark.parametrize("name", OWN)
def test_what_must_be_healthy_first(name):
    waits_for = COMPOSE["services"][name].get("depends_on", {})
    assert set(STACK.children[name].depends_on) <= set(waits_for)
    for other in STACK.children[name].depends_on:
        assert waits_for[other]["condition"] == "service_healthy" and "healthcheck" in COMPOSE["services"][other]


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
    assert set(COMPOSE) <= {"version", "services", "volumes", "x-forgerl", "x-env"}
    assert "start_interval" not in str(COMPOSE)
