"""A black-box agent: a plain script on the `openai` SDK that knows nothing of this system."""

import sys
from pathlib import Path

from services.rollout.agents.agent import Agent


def agent() -> Agent:
    """The example script; FORGERL_ROLLOUT_SCRIPT puts another in its place."""
    example = Path(__file__).parents[3] / "examples" / "agents" / "openai_script.py"
    return Agent("openai_script", (sys.executable, str(example)))
