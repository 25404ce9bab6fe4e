"""Fixtures of the workflow tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


from temporal_servers import dev_client, dev_server, skipping

__all__ = ["dev_client", "dev_server", "skipping"]
