"""Trajectories of 20 turns of 1,000 tokens, and the submissions that name them. Made before the clock starts.

A few conversations are made up; every episode gets a blob of its own, with its own name in it. It refuses tokens that
are all different or all alike: their frequencies follow Zipf's law, as a text's do.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
from forgerl.common.v1 import task_pb2
from forgerl.gateway.v1 import episode_service_pb2

from services.contract.trajectory import MEDIA_TYPE, Node, Span, Trajectory, encode
from services.environments.registry import environments
from services.kernel.blobs import Blobs

TURNS, TURN_TOKENS, RESULT_TOKENS = 20, 1_000, 60
GROUP = 8
VOCABULARY = 32_000
VARIANTS = 16
ELSEWHERE = (-1, "elsewhere")
"""The policy that sampled them: none of the run's."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One episode: how it is submitted and what its agent answered."""

    submission: episode_service_pb2.Submission
    answer: str


def conversation(seed: int) -> Trajectory:
    """A question, then 20 turns with a tool's result after each; nothing in it repeats word by word."""
    random = np.random.default_rng(seed)
    words = [f"{word:x}".translate(str.maketrans("0123456789", "ghijklmnop")) for word in range(VOCABULARY)]

    def ids(count: int) -> tuple[int, ...]:
        return tuple(int(word) for word in np.minimum(random.zipf(1.3, count), VOCABULARY) - 1)

    def text(role: str, token_ids: tuple[int, ...]) -> str:
        return json.dumps({"role": role, "content": " ".join(words[token] for token in token_ids)})

    asked = ids(RESULT_TOKENS)
    nodes = [Node(0, -1, "context", -1, "user", text("user", asked), asked)]
    for turn in range(TURNS):
        said, told = ids(TURN_TOKENS), ids(RESULT_TOKENS)
        logprobs = tuple(float(np.float32(value)) for value in -random.exponential(0.5, TURN_TOKENS))
        at = len(nodes)
        spans = (Span(0, TURN_TOKENS, *ELSEWHERE),)
        message = text("assistant", said)
        nodes.append(
            Node(at, at - 1, "sampled", turn, "assistant", message, said, logprobs, spans, 1.0, 1.0, "stop", False, "c")
        )
        nodes.append(Node(at + 1, at, "context", -1, "tool", text("tool", told), told))
    return Trajectory("e", "r", tuple(nodes[:-1]))


def renamed(data: bytes, episode_id: str, run_id: str) -> bytes:
    """The same rows under another episode's name; compressed anew, so that the bytes are those `encode` would write."""
    table = ipc.open_file(pa.BufferReader(data)).read_all()
    schema = table.schema.with_metadata({"episode_id": episode_id, "run_id": run_id, "format": "1"})
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, schema, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table.cast(schema))
    return sink.getvalue().to_pybytes()


async def recordings(blobs: Blobs, run_id: str, count: int) -> list[Recording]:
    """`count` episodes in groups of 8, every other one with a wrong answer, so that every group has spread."""
    variants = [encode(conversation(seed)) for seed in range(VARIANTS)]
    made: list[Recording] = []
    for index, (group, task, answer) in zip(range(count), _tasks(run_id), strict=False):
        episode_id = f"{run_id}-{index:06d}"
        blob = await blobs.put(renamed(variants[index % VARIANTS], episode_id, run_id), MEDIA_TYPE)
        said = answer if index % 2 else "nothing of the kind"
        recorded = task_pb2.RecordedEpisode(
            trajectory=blob, outcome=task_pb2.OUTCOME_COMPLETED, answer=said, agent_wall_s=1.0
        )
        submission = episode_service_pb2.Submission(
            episode_id=episode_id,
            run_id=run_id,
            kind=task_pb2.EPISODE_KIND_TRAIN,
            group_id=group,
            domain="tool",
            task=task,
            recorded=recorded,
        )
        made.append(Recording(submission, said))
    return made


def _tasks(run_id: str) -> Iterator[tuple[str, task_pb2.Task, str]]:
    tool, group = environments()["tool"], 0
    while True:
        task = tool.task("train", group)
        given = task_pb2.Task(
            environment="tool", task_id=task.task_id, split=task_pb2.SPLIT_TRAIN, payload=task.payload
        )
        answer = str(json.loads(task.payload)["answer"])
        for _ in range(GROUP):
            yield f"{run_id}-g{group:05d}", given, answer
        group += 1
