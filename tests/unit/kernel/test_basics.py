"""Errors and their statuses, clock and ids, settings, logs."""

import logging
from datetime import UTC, datetime

import grpc
import pytest
from clocks import ManualClock

from services.kernel import errors, logs
from services.kernel.blobs import Blobs
from services.kernel.catalogue import Catalogue
from services.kernel.clock import RandomIds
from services.kernel.event_store import EventStore
from services.kernel.rpc import RpcSecurity
from services.kernel.settings import ServiceSettings, load_settings
from services.kernel.topics import BrokerSettings

TABLE = [
    (errors.InvalidInput("window", -1, "1 to 10"), grpc.StatusCode.INVALID_ARGUMENT, 400),
    (errors.NotFound("x"), grpc.StatusCode.NOT_FOUND, 404),
    (errors.Refused("x"), grpc.StatusCode.FAILED_PRECONDITION, 409),
    (errors.Unauthenticated("x"), grpc.StatusCode.UNAUTHENTICATED, 401),
    (errors.Conflict("x"), grpc.StatusCode.ABORTED, 409),
    (errors.Transient("x"), grpc.StatusCode.UNAVAILABLE, 503),
    (errors.Permanent("x"), grpc.StatusCode.INTERNAL, 500),
    (ValueError("x"), grpc.StatusCode.UNKNOWN, 500),
]


@pytest.mark.parametrize(("error", "status", "http"), TABLE, ids=lambda value: type(value).__name__)
def test_the_table_of_errors(error: Exception, status: grpc.StatusCode, http: int) -> None:
    assert (errors.grpc_status(error), errors.http_status(error)) == (status, http)
    back = errors.from_grpc(status, str(error))
    assert type(back) is (type(error) if isinstance(error, errors.ForgeError) else errors.Transient)
    assert back.message == str(error)


def test_an_input_error_says_field_given_and_allowed() -> None:
    assert errors.InvalidInput("window", -1, "1 to 10").message == "window: given -1; allowed 1 to 10"
    back = errors.from_grpc(grpc.StatusCode.INVALID_ARGUMENT, "window: given -1; allowed 1 to 10")
    assert isinstance(back, errors.InvalidInput) and back.field == "window"


@pytest.mark.parametrize(
    "url", ["postgresql://u:hush@h/", "mysql://u:hush@h/d", "postgresql://u:h@hush@h/", "redis://:hush@h"]
)
def test_a_store_url_that_is_refused_is_shown_without_its_password(url: str) -> None:
    with pytest.raises(errors.InvalidInput, match=r"store_url: given '\w+://\*\*\*@h") as refused:
        EventStore.open(url, Catalogue([]), ManualClock(datetime(2026, 1, 1, tzinfo=UTC)))
    assert "hush" not in str(refused.value)


def test_a_blob_url_that_is_refused_and_a_token_are_shown_without_secrets() -> None:
    with pytest.raises(errors.InvalidInput, match="blob_url") as refused:
        Blobs.open("s4://key:hush@bucket/x")
    assert "hush" not in str(refused.value)
    assert "hush" not in repr(RpcSecurity("hush"))


def test_ids_sort_by_time_and_do_not_repeat() -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    ids = RandomIds(clock)
    first = ids.new("ep")
    clock.advance(0.001)
    second = ids.new("ep")
    assert first < second and len(first) == 3 + 26 and first.startswith("ep-")
    # 2026-01-01 is 1,767,225,600,000 ms; its 48 bits are the first ten characters (two bits of padding first).
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    assert sum(alphabet.index(c) * 32 ** (9 - i) for i, c in enumerate(first[3:13])) == 1_767_225_600_000
    assert len({ids.new("x") for _ in range(1000)}) == 1000


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    clock.advance(90.5)
    assert (clock.now(), clock.monotonic()) == (datetime(2026, 1, 1, 0, 1, 30, 500_000, tzinfo=UTC), 90.5)


class Settings(ServiceSettings, env_prefix="FORGERL_SAMPLE_"):
    bind: str = "127.0.0.1:1"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path):
    import os

    for name in [name for name in os.environ if name.startswith(("FORGERL_", "OTEL_"))]:
        monkeypatch.delenv(name)
    for name, value in {"TOKEN": "t", "SECRET": "s", "DATA_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(f"FORGERL_{name}", value)
    return monkeypatch


def test_defaults_hang_on_the_data_folder(environment, tmp_path) -> None:
    settings = load_settings(Settings)
    assert settings.service() == "sample"
    assert settings.store_url == f"sqlite:///{tmp_path}/stores/sample.db"
    assert settings.blob_url == f"file://{tmp_path}/blobs"
    assert settings.broker() == BrokerSettings("127.0.0.1:9092", 1)


def test_own_and_shared_variables_are_read_and_peers_tolerated(environment) -> None:
    environment.setenv("FORGERL_SAMPLE_BIND", "0.0.0.0:9")
    environment.setenv("FORGERL_STORE_URL", "postgresql://u:hush@h/d")
    environment.setenv("FORGERL_SAMPLE_ADDRESS", "for.others:1")
    environment.setenv("FORGERL_OTHER_THING", "not ours")
    settings = load_settings(Settings)
    assert (settings.bind, settings.store_url) == ("0.0.0.0:9", "postgresql://u:hush@h/d?schema=sample")
    shown = settings.describe()
    assert (shown["store_url"], shown["token"], shown["bind"]) == (
        "postgresql://***@h/d?schema=sample",
        "**********",
        "0.0.0.0:9",
    )
    assert "hush" not in str(shown)


@pytest.mark.parametrize(
    ("name", "value"),
    [("FORGERL_SAMPLE_BINDD", "x"), ("FORGERL_DURABILITY", "never"), ("FORGERL_KAFKA_REPLICATION", "many")],
)
def test_a_variable_that_cannot_be_used_is_named(environment, name: str, value: str) -> None:
    environment.setenv(name, value)
    with pytest.raises(errors.InvalidInput, match=name):
        load_settings(Settings)


def test_a_missing_variable_is_named(environment) -> None:
    environment.delenv("FORGERL_TOKEN")
    with pytest.raises(errors.InvalidInput, match="FORGERL_TOKEN: given 'nothing'"):
        load_settings(Settings)


@pytest.mark.parametrize("name", ["FORGERL_TOKEN", "FORGERL_SECRET"])
def test_an_empty_secret_would_let_anybody_in(environment, name: str) -> None:
    environment.setenv(name, "")
    with pytest.raises(errors.InvalidInput, match=name):
        load_settings(Settings)


def test_a_flooding_library_is_kept_to_one_line_a_place(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("sample", json=True)
    for _ in range(100):
        logging.getLogger("aiokafka.conn").error("refused")
    for _ in range(3):
        logging.getLogger("mine").error("mine")
    logs.get_logger().info("thing.happened", count=2)
    lines = capsys.readouterr().err.splitlines()
    assert sum("refused" in line for line in lines) == 1
    assert sum('"mine"' in line for line in lines) == 3
    assert '"event": "thing.happened"' in lines[-1] and '"count": 2' in lines[-1] and '"service": "sample"' in lines[-1]


def test_a_traceback_shows_no_local_variable(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure("kernel-test")
    token = "hush-" + "secret"
    try:
        raise RuntimeError("it broke")
    except RuntimeError:
        logging.getLogger("somewhere").warning("thing.failed", exc_info=True)
    shown = capfd.readouterr().err
    assert "RuntimeError: it broke" in shown
    assert token not in shown
