"""The agents by name: the built-in ones, and those that other packages declare under "forgerl.agents".

An entry point names a callable without arguments that returns an Agent. It refuses a name that is taken.
"""

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points

from services.kernel.errors import InvalidInput
from services.rollout.agents import openai_script, tool_loop
from services.rollout.agents.agent import Agent

ENTRY_POINT_GROUP = "forgerl.agents"

BUILT_IN: Mapping[str, Callable[[], Agent]] = {
    "tool_loop": tool_loop.agent,
    "openai_script": openai_script.agent,
}


def agents() -> Mapping[str, Agent]:
    """All agents of this installation. Raises ValueError when another package takes a name that is in use."""
    makers = dict(BUILT_IN)
    for entry_point in entry_points(group=ENTRY_POINT_GROUP):
        if entry_point.name in makers:
            raise ValueError(f"agent {entry_point.name!r} of {entry_point.value} has a name that is already taken")
        makers[entry_point.name] = entry_point.load()
    return {name: maker() for name, maker in makers.items()}


def agent_named(known: Mapping[str, Agent], name: str) -> Agent:
    """The agent of that name. Raises InvalidInput listing those that exist."""
    if name not in known:
        raise InvalidInput("agent", name, ", ".join(sorted(known)))
    return known[name]
