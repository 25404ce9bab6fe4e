"""Lets these tests use the scripted parts of the workflow tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "workflow" / "rollout"))
