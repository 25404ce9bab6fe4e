"""Which agents there are."""

from pathlib import Path

import pytest

from services.kernel.errors import InvalidInput
from services.rollout.registry import agent_named, agents


def test_the_built_in_agents():
    known = agents()
    assert {name: known[name].style for name in ("tool_loop", "openai_script")} == {
        "tool_loop": "tool_loop",
        "openai_script": "program",
    }
    assert Path(known["openai_script"].command[1]).is_file()


def test_an_unknown_agent_is_named_with_those_that_exist():
    with pytest.raises(InvalidInput, match=r"agent: given 'nobody'; allowed openai_script, tool_loop"):
        agent_named(agents(), "nobody")
