"""The white-box agent: model, tools, model, until the model answers. The loop itself is the workflow."""

from services.rollout.agents.agent import Agent


def agent() -> Agent:
    """The default agent."""
    return Agent("tool_loop")
