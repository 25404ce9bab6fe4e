"""Turns as they lie in the store: `TurnRecorded`, with its ids beside it as a blob when they are large.

It refuses to shorten anything: ids and log-probabilities are kept bit for bit.
"""

from array import array
from collections.abc import Sequence

from forgerl.gateway.v1 import episode_service_pb2, record_pb2

from services.gateway.domain import messages
from services.gateway.domain.tree import CallMark, MessageTree, Sample, Span, Turn
from services.kernel.blobs import Blobs
from services.kernel.envelope import Event
from services.kernel.errors import Permanent

INLINE_BYTES = 64 * 1024
_MEDIA_TYPE = "application/x-forgerl-turn-tokens"


def pack_ids(token_ids: Sequence[int]) -> bytes:
    """uint32, little endian."""
    return _little(array("I", token_ids))


def unpack_ids(data: bytes) -> tuple[int, ...]:
    """Inverse of `pack_ids`."""
    return _read("I", data)


def _little(values: "array[int] | array[float]") -> bytes:
    # Engines and stores that this runs on are little endian; array uses the machine's order.
    return values.tobytes()


def _read(code: str, data: bytes) -> tuple:
    values = array(code)
    values.frombytes(data)
    return tuple(values)


async def to_record(turn: Turn, blobs: Blobs) -> record_pb2.TurnRecorded:
    """The event of a turn; large ids are put into the blob store first."""
    record = record_pb2.TurnRecorded(
        call_id=turn.mark.call_id,
        idempotency_key=turn.mark.idempotency_key,
        digest=turn.mark.digest,
        attempt=turn.mark.attempt,
        parent_id=turn.parent_id,
        frame=turn.frame,
        context_json=[messages.to_json(message) for message in turn.context],
        message_json=messages.to_json(turn.message),
        spans=[
            episode_service_pb2.WeightSpan(
                start=s.start, end=s.end, policy_step=s.policy_step, policy_digest=s.policy_digest
            )
            for s in turn.sample.spans
        ],
        temperature=turn.sample.temperature,
        top_p=turn.sample.top_p,
        finish_reason=turn.sample.finish_reason,
        ended=turn.sample.ended,
        replaces=turn.replaces,
        prompt_tokens=turn.prompt_tokens,
        cached_tokens=turn.cached_tokens,
        queue_s=turn.queue_s,
        total_s=turn.total_s,
    )
    tokens = record_pb2.TurnTokens(
        context_ids=pack_ids(turn.context_ids),
        sampled_ids=pack_ids(turn.sample.token_ids),
        logprobs=_little(array("f", turn.sample.logprobs)),
    )
    if tokens.ByteSize() > INLINE_BYTES:
        record.tokens_blob.CopyFrom(await blobs.put(tokens.SerializeToString(), _MEDIA_TYPE))
    else:
        record.tokens.CopyFrom(tokens)
    return record


async def to_turn(record: record_pb2.TurnRecorded, blobs: Blobs) -> Turn:
    """Inverse of `to_record`."""
    tokens = record.tokens
    if record.HasField("tokens_blob"):
        tokens = record_pb2.TurnTokens.FromString(await blobs.get(record.tokens_blob))
    sample = Sample(
        token_ids=unpack_ids(tokens.sampled_ids),
        logprobs=_read("f", tokens.logprobs),
        spans=tuple(Span(s.start, s.end, s.policy_step, s.policy_digest) for s in record.spans),
        temperature=record.temperature,
        top_p=record.top_p,
        finish_reason=record.finish_reason,
        ended=record.ended,
    )
    return Turn(
        mark=CallMark(record.call_id, record.idempotency_key, record.digest, record.attempt),
        parent_id=record.parent_id,
        frame=record.frame,
        context=tuple(messages.from_json(text) for text in record.context_json),
        context_ids=unpack_ids(tokens.context_ids),
        message=messages.from_json(record.message_json),
        sample=sample,
        replaces=record.replaces if record.HasField("replaces") else None,
        prompt_tokens=record.prompt_tokens,
        cached_tokens=record.cached_tokens,
        queue_s=record.queue_s,
        total_s=record.total_s,
    )


async def fold(tree: MessageTree, events: Sequence[Event], blobs: Blobs) -> None:
    """Take events of `gateway.turns/<episode>` into a tree."""
    for event in events:
        match event.message:
            case record_pb2.TurnRecorded():
                tree.apply(await to_turn(event.message, blobs))
            case record_pb2.TurnsClosed():
                tree.close(event.message.reason)
            case _:
                raise Permanent(f"{event.id}: unexpected {type(event.message).__name__}")
