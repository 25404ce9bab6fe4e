"""Where a stack keeps its stores and blobs: the instance's folder, or the URLs that its services were given.

It refuses to make a store: one that isn't there is named.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from services.cli.errors import UsageError
from services.client.places import home


@dataclass(frozen=True, slots=True)
class PoolPlaces:
    """`store_url` holds {service}; `blob_url` is file:// or s3://."""

    store_url: str
    blob_url: str

    @classmethod
    def of(cls, instance: str | None) -> "PoolPlaces":
        """Of a local instance; FORGERL_STORE_URL, FORGERL_BLOB_URL and FORGERL_DATA_DIR win. Raises UsageError."""
        name = instance or os.environ.get("FORGERL_INSTANCE") or "default"
        folder = Path(os.environ.get("FORGERL_DATA_DIR") or home() / name).resolve()
        store_url = os.environ.get("FORGERL_STORE_URL") or f"sqlite:///{folder}/stores/{{service}}.db"
        blob_url = os.environ.get("FORGERL_BLOB_URL") or f"file://{folder}/blobs"
        return cls(store_url, blob_url)

    def store(self, service: str) -> str:
        """The URL of a service's store. Raises UsageError when it is a file that isn't there."""
        url = self.store_url.replace("{service}", service)
        if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).is_file():
            raise UsageError(
                f"{url.removeprefix('sqlite:///')}: no such store; --instance names a stack, or set FORGERL_STORE_URL"
            )
        if url.startswith(("postgresql://", "postgres://")) and "schema=" not in url:
            # As services do where no schema is named.
            url += f"{'&' if '?' in url else '?'}schema={service}"
        return url
