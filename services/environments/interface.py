"""What an environment is: it makes tasks, describes them to a model, runs their tools and judges the answer.

It refuses to do IO of its own: whatever a tool must run goes through the `Sandbox` that the caller hands in.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast, get_args

Split = Literal["train", "heldout"]
Message = Mapping[str, object]
"""One chat message in OpenAI form: role, content, and for assistants tool_calls."""

MAX_PAYLOAD_BYTES = 16 * 1024


class UnknownEnvironment(ValueError):
    """No environment has this name; the message lists those that exist."""


class InvalidTask(ValueError):
    """A task's split, index or payload can't be used; the message names the field and what is allowed."""


class ToolFailure(Exception):
    """A tool call that can't be served; its message goes back to the model as the tool's result."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task, complete with its hidden answer. `payload`: compact JSON that only its environment reads, <= 16 KiB."""

    environment: str
    task_id: str
    split: Split
    payload: bytes


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool that the model may call. `parameters`: a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, object]

    def openai(self) -> dict[str, object]:
        """The tool as an entry of a chat request's `tools`."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Verdict:
    """How good an answer was: `score` in 0..1, and one line that says why."""

    score: float
    detail: str


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """What a sandboxed program left behind. `exit_code` means nothing where `timed_out`."""

    stdout: str
    stderr: str
    exit_code: int
    timed_out: bool


class Sandbox(Protocol):
    """Runs untrusted Python apart from everything else."""

    async def run_python(self, code: str, timeout_s: float) -> SandboxResult:
        """Run `code` as a program for at most `timeout_s` seconds; a program that fails is a result, not an error."""
        ...


class Environment(Protocol):
    """A kind of task. All methods but `call_tool` are pure."""

    @property
    def name(self) -> str:
        """The name under which runs ask for it."""
        ...

    def task(self, split: str, index: int) -> Task:
        """Task number `index` (0..4,194,303) of a split: the same on every machine. Raises InvalidTask."""
        ...

    def messages(self, task: Task) -> list[Message]:
        """The first messages of the conversation; never the answer."""
        ...

    def tools(self, task: Task) -> list[ToolSpec]:
        """The tools on offer; may be empty."""
        ...

    def max_turns(self, task: Task) -> int:
        """How many times the model may speak."""
        ...

    async def call_tool(self, task: Task, name: str, arguments: Mapping[str, object], sandbox: Sandbox) -> str:
        """Serve one call of the model. Raises ToolFailure, and nothing else, when the call is bad."""
        ...

    def verify(self, task: Task, answer: str, transcript: Sequence[Message]) -> Verdict:
        """Judge the last message's text. `transcript`: the whole conversation, for those who need more than that."""
        ...


def pack(fields: Mapping[str, object]) -> bytes:
    """A payload from its fields: compact JSON. Raises InvalidTask above 16 KiB."""
    payload = json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise InvalidTask(f"payload: {len(payload)} bytes given, at most {MAX_PAYLOAD_BYTES} allowed")
    return payload


def numbered_task(environment: str, split: str, index: int, fields: Mapping[str, object]) -> Task:
    """Task number `index` of a split, named after both. Raises InvalidTask."""
    return Task(environment, f"{environment}-{split}-{index}", checked_split(split), pack(fields))


def unpack(task: Task, environment: str, wanted: Sequence[str]) -> dict[str, str]:
    """The text fields `wanted` of a task's payload. Raises InvalidTask when it is another's task or one is missing."""
    if task.environment != environment:
        raise InvalidTask(f"environment: {task.environment!r} given, {environment!r} allowed")
    try:
        decoded: object = json.loads(task.payload)
    except ValueError as error:
        raise InvalidTask(f"payload of task {task.task_id}: not JSON: {error}") from error
    if not isinstance(decoded, dict):
        raise InvalidTask(f"payload of task {task.task_id}: a JSON object is wanted")
    fields = cast("dict[str, object]", decoded)
    for name in wanted:
        if not isinstance(fields.get(name), str):
            raise InvalidTask(
                f"payload of task {task.task_id}: field {name!r} is missing or not text; wanted: {wanted}"
            )
    return {name: str(fields[name]) for name in wanted}


def text_argument(tool: ToolSpec, arguments: Mapping[str, object]) -> str:
    """The one text argument that a tool takes. Raises ToolFailure naming what was given and what is allowed."""
    (wanted,) = cast("Mapping[str, object]", tool.parameters["properties"])
    if set(arguments) != {wanted}:
        raise ToolFailure(f"error: {tool.name} takes {wanted}, not {', '.join(sorted(arguments)) or 'nothing'}")
    value = arguments[wanted]
    if not isinstance(value, str) or not value.strip():
        raise ToolFailure(f"error: {wanted} must be a text that is not empty")
    return value


def last_words(answer: str) -> str:
    """An answer without reasoning that was left in it, and without outer blanks."""
    return answer.rpartition("</think>")[2].strip()


def checked_split(split: str) -> Split:
    """The split of that name. Raises InvalidTask."""
    if split not in get_args(Split):
        raise InvalidTask(f"split: {split!r} given, allowed: {', '.join(get_args(Split))}")
    return cast("Split", split)
