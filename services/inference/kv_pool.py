"""Starts LMCache's server: `python -m services.inference.kv_pool`. It becomes the KV pool that engines share.

It knows nothing of weights: callers salt every prompt with the policy's digest, so KV of one set of weights never
serves another.
"""

import json
import logging
import os
import sys

from services.inference.settings import KvPoolSettings
from services.kernel.errors import InvalidInput
from services.kernel.settings import load_settings

# Said at the end of each request that was too short for a look-up (less than a chunk), which is nothing to warn of.
_TOO_SHORT = "Session %s has no lookup ipc key, skipping touch"
_LOOKUP_LOGGER = "lmcache.v1.multiprocess.modules.lookup"


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """A filter for LMCache's log: False for that one message."""
    return record.msg != _TOO_SHORT


def pool_arguments(settings: KvPoolSettings) -> list[str]:
    """`lmcache`'s own arguments."""
    return [
        "server",
        *("--host", settings.host, "--port", str(settings.port)),
        *("--http-host", settings.host, "--http-port", str(settings.http_port)),
        *("--chunk-size", str(settings.chunk_tokens), "--eviction-policy", "LRU"),
        *("--l1-size-gb", str(settings.size_gb), "--l1-init-size-gb", str(settings.size_gb)),
        *("--supported-transfer-mode", "auto"),
        *("--l2-adapter", json.dumps({"type": "fs", "base_path": str(settings.folder)})),
    ]


def main() -> None:
    """Run the pool in this process until it is stopped."""
    try:
        settings = load_settings(KvPoolSettings)
        settings.folder.mkdir(parents=True, exist_ok=True)
    except InvalidInput as error:
        sys.stderr.write(f"kv_pool: {error.message}\n")
        sys.exit(2)
    os.environ.update({"LMCACHE_LOG_LEVEL": "WARNING", "LMCACHE_TRACK_USAGE": "false", "OMP_NUM_THREADS": "1"})
    # Imported late: it reads the environment when it is imported, and takes seconds.
    from lmcache.cli.main import main as lmcache

    logging.getLogger(_LOOKUP_LOGGER).addFilter(is_worth_a_line)
    sys.argv = ["lmcache", *pool_arguments(settings)]
    lmcache()


if __name__ == "__main__":
    main()
