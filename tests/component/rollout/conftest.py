"""Lets these tests use the scripted parts and the servers of the workflow tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "workflow" / "rollout"))

from temporal_servers import dev_client, dev_server

__all__ = ["dev_client", "dev_server"]
