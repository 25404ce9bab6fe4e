"""What an agent is to this service: a name, and either our own tool loop or any program's command line."""

from dataclasses import dataclass

from services.rollout.domain.episode import PROGRAM, TOOL_LOOP


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent. `command` is empty for the white-box loop; else a program that is run in a sandbox, where it finds

    OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_MODEL and FORGERL_TASK_FILE (JSON: messages, tools), and whose last line
    of output is its answer. A word of the command that is an existing file is shown to the sandbox, read-only.
    """

    name: str
    command: tuple[str, ...] = ()

    @property
    def style(self) -> str:
        """TOOL_LOOP or PROGRAM."""
        return PROGRAM if self.command else TOOL_LOOP
