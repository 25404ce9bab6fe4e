"""`forgerl dlq` finds the broker of an instance, and how many copies it keeps."""

import json
import os

import pytest

from services.cli.dead_letter_command import _broker
from services.cli.errors import UsageError
from services.kernel.topics import BrokerSettings


@pytest.fixture
def instance(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("FORGERL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("FORGERL_HOME", str(tmp_path))
    (tmp_path / "one").mkdir()
    recorded = {"FORGERL_KAFKA_URL": "127.0.0.1:9", "FORGERL_KAFKA_REPLICATION": "3"}
    (tmp_path / "one" / "stack.json").write_text(json.dumps({"env": recorded}))
    return "one"


def test_as_the_stack_was_started(instance):
    assert _broker(instance) == BrokerSettings("127.0.0.1:9", 3)


def test_the_environment_wins(instance, monkeypatch):
    monkeypatch.setenv("FORGERL_KAFKA_URL", "kafka:9092")
    monkeypatch.setenv("FORGERL_KAFKA_REPLICATION", "2")
    assert _broker("another") == BrokerSettings("kafka:9092", 2)


@pytest.mark.parametrize("given", ["0", "two", "-1"])
def test_copies_that_are_no_number_are_refused(instance, monkeypatch, given):
    monkeypatch.setenv("FORGERL_KAFKA_REPLICATION", given)
    with pytest.raises(UsageError, match=f"FORGERL_KAFKA_REPLICATION: given '{given}'"):
        _broker(instance)
