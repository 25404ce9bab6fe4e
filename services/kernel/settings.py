"""What every service can be told by its environment; refuses unknown keys and shows what it resolved.

Own fields of a service are read from FORGERL_<SERVICE>_<FIELD>, shared ones from FORGERL_<FIELD>. A service writes
`class Settings(ServiceSettings, env_prefix="FORGERL_<SERVICE>_")`.
"""

import os
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.kernel.errors import InvalidInput, masked
from services.kernel.topics import BrokerSettings

# Addresses of services are given to everyone, so they may stand under the prefix of a service that doesn't read them.
_PEER_SUFFIXES = ("_ADDRESS", "_URL")


def _shared(name: str, default: Any = ..., **bounds: Any) -> Any:
    return Field(default=default, validation_alias=name, validate_default=True, **bounds)


class ServiceSettings(BaseSettings):
    """Settings that all services share."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    # Names the folder and the ports, so that two checkouts on one machine don't collide.
    instance: str = _shared("FORGERL_INSTANCE", "default")
    # Folder for everything kept locally.
    data_dir: Path = _shared("FORGERL_DATA_DIR", Path(".forgerl/default"))
    # Bootstrap servers, host:port[,host:port].
    kafka_url: str = _shared("FORGERL_KAFKA_URL", "127.0.0.1:9092")
    # Copies that the broker keeps of each record; one node can keep one.
    kafka_replication: int = _shared("FORGERL_KAFKA_REPLICATION", 1)
    # Event store, sqlite:///FILE or postgresql://…[?schema=NAME]; empty: a file of its own under data_dir. No two
    # services share one: {service} stands for the service's name, which is also the schema where none is named.
    store_url: str = _shared("FORGERL_STORE_URL", "")
    # Blob store, file:///DIR or s3://BUCKET/PREFIX; empty: a folder under data_dir.
    blob_url: str = _shared("FORGERL_BLOB_URL", "")
    # Temporal front end, host:port, and namespace.
    temporal_address: str = _shared("FORGERL_TEMPORAL_ADDRESS", "127.0.0.1:7233")
    temporal_namespace: str = _shared("FORGERL_TEMPORAL_NAMESPACE", "default")
    # Bearer token that services show each other.
    token: SecretStr = _shared("FORGERL_TOKEN", min_length=1)
    # Key that signs the credentials handed to outsiders.
    secret: SecretStr = _shared("FORGERL_SECRET", min_length=1)
    # What an acknowledged write survives: "process": kill -9; "power": a power cut too, at ten times the cost.
    durability: Literal["process", "power"] = _shared("FORGERL_DURABILITY", "process")
    log_level: str = _shared("FORGERL_LOG_LEVEL", "INFO")
    log_json: bool = _shared("FORGERL_LOG_JSON", False)
    # Collector for traces (OTLP over gRPC), beside the local files; none by default.
    otlp_endpoint: str | None = _shared("OTEL_EXPORTER_OTLP_ENDPOINT", None)
    # PEM files; with certificate and key the gRPC servers speak TLS, with the CA the clients do.
    tls_certificate: Path | None = _shared("FORGERL_TLS_CERTIFICATE", None)
    tls_key: Path | None = _shared("FORGERL_TLS_KEY", None)
    tls_ca: Path | None = _shared("FORGERL_TLS_CA", None)

    @classmethod
    def service(cls) -> str:
        """The service's name, from its prefix."""
        return str(cls.model_config.get("env_prefix", "")).removeprefix("FORGERL_").rstrip("_").lower()

    @field_validator("data_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.absolute()

    @field_validator("store_url", "blob_url")
    @classmethod
    def _under_data_dir(cls, value: str, info: ValidationInfo) -> str:
        folder = info.data.get("data_dir", Path())
        local = {"store_url": f"sqlite:///{folder}/stores/{cls.service()}.db", "blob_url": f"file://{folder}/blobs"}
        url = (value or local[str(info.field_name)]).replace("{service}", cls.service())
        if url.startswith(("postgresql://", "postgres://")) and "schema=" not in url:
            url += f"{'&' if '?' in url else '?'}schema={cls.service()}"
        return url

    def broker(self) -> BrokerSettings:
        """The broker as the kernel wants it described."""
        return BrokerSettings(self.kafka_url, self.kafka_replication)

    def describe(self) -> dict[str, Any]:
        """All settings as resolved, fit for a log: secrets and passwords in URLs are masked."""
        shown = self.model_dump(mode="json")
        return {k: masked(v) if isinstance(v, str) else v for k, v in shown.items()}


S = TypeVar("S", bound=ServiceSettings)


def load_settings(cls: type[S]) -> S:
    """Settings from the environment. Raises InvalidInput that names the variable."""
    prefix = str(cls.model_config.get("env_prefix", ""))
    fields = cls.model_fields
    known = {f"{prefix}{name}".upper() for name in fields} | {str(field.validation_alias) for field in fields.values()}
    for name in sorted(os.environ):
        if prefix and name.startswith(prefix) and name not in known and not name.endswith(_PEER_SUFFIXES):
            raise InvalidInput(name, "a value", f"only {', '.join(sorted(k for k in known if k.startswith(prefix)))}")
    try:
        return cls()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = str(first["loc"][0]) if first["loc"] else cls.__name__
        variable = place if place.isupper() else f"{prefix}{place}".upper()
        given = "nothing" if first["type"] == "missing" else first.get("input")
        raise InvalidInput(variable, given, first["msg"]) from None
