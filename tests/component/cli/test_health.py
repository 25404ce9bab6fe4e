"""Health over gRPC with a real server: in the clear, over TLS with its CA, and with a CA that didn't sign."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.cli.errors import UsageError
from services.cli.supervisor.health import Door, HealthProbe, Tls
from services.kernel.rpc import RpcSecurity, serve

ANYWHERE = "127.0.0.1:0"


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    key, certificate = folder / f"{name}-key.pem", folder / f"{name}.pem"
    command = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-days", "1", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
        *("-keyout", key, "-out", certificate),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return key, certificate


@pytest.fixture
async def secure(tmp_path):
    key, certificate = make_certificate(tmp_path, "own")
    server = await serve([], ANYWHERE, RpcSecurity("t", certificate=certificate, key=key, ca=certificate))
    yield Door("grpc", f"127.0.0.1:{server.port}"), certificate
    await server.stop()


async def test_over_tls_with_the_given_ca(secure):
    door, certificate = secure
    assert await HealthProbe("t", Tls(certificate.read_bytes())).is_healthy(door)


async def test_a_certificate_that_the_ca_did_not_sign_is_not_trusted(secure, tmp_path):
    door, _ = secure
    _, other = make_certificate(tmp_path, "other")
    assert not await HealthProbe("t", Tls(other.read_bytes())).is_healthy(door)


async def test_the_systems_authorities_do_not_vouch_for_it(secure):
    door, _ = secure
    assert not await HealthProbe("t", Tls()).is_healthy(door)


async def test_no_question_in_the_clear_reaches_a_tls_server_and_none_over_tls_a_plain_one(secure):
    door, certificate = secure
    assert not await HealthProbe("t").is_healthy(door)
    plain = await serve([], ANYWHERE, RpcSecurity("t"))
    target = f"127.0.0.1:{plain.port}"
    probe = HealthProbe("t", Tls(certificate.read_bytes()))
    assert not await probe.is_healthy(Door("grpc", target))
    # Temporal's own server speaks in the clear beside services that don't.
    assert await probe.is_healthy(Door("plain-grpc", target))
    await plain.stop()


def test_what_the_environment_says(tmp_path):
    assert Tls.of({}) is None
    assert Tls.of({"FORGERL_TLS_CERTIFICATE": "c.pem"}) == Tls()
    (tmp_path / "ca.pem").write_bytes(b"PEM")
    assert Tls.of({"FORGERL_TLS_CA": str(tmp_path / "ca.pem")}) == Tls(b"PEM")
    with pytest.raises(UsageError, match=r"FORGERL_TLS_CA: given /nowhere\.pem; allowed a PEM file"):
        Tls.of({"FORGERL_TLS_CA": "/nowhere.pem"})


async def test_as_a_command(secure):
    door, certificate = secure

    def ask(*words: str, **more: str) -> int:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("FORGERL_")}
        command = [sys.executable, "-m", "services.cli.supervisor.health", *words]
        return subprocess.run(command, env=clean | more, check=False, capture_output=True).returncode

    assert await asyncio.to_thread(ask, "grpc", door.target, FORGERL_TLS_CA=str(certificate)) == 0
    assert await asyncio.to_thread(ask, "grpc", door.target) == 1
    assert await asyncio.to_thread(ask, "grpc") == 2
