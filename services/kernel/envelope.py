"""What an event is, and its two packings: Kafka headers (CloudEvents, binary mode) and the event store's state.

It refuses to know topics; a record that can't be read is a Permanent error, never a guess.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from forgerl.common.v1.envelope_pb2 import Envelope
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from services.kernel.errors import Permanent

Headers = Iterable[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an event was written: the conversation it belongs to, the event before it, and its W3C traceparent."""

    correlation_id: str
    causation_id: str
    traceparent: str


@dataclass(frozen=True, slots=True)
class Event:
    """A fact: version `version` (from 1, without gaps) of a stream `<service>.<noun>/<key>`."""

    stream: str
    version: int
    time: datetime
    message: Message
    cause: Cause

    @property
    def id(self) -> str:
        """`stream@version`, the same wherever the event is met."""
        return f"{self.stream}@{self.version}"

    @property
    def key(self) -> str:
        """What the stream is about: the part after the first slash."""
        return self.stream.partition("/")[2]

    def as_cause(self) -> Cause:
        """The cause of what is written because of this event."""
        return Cause(self.cause.correlation_id, self.id, self.cause.traceparent)


def type_name(message: Message | type[Message]) -> str:
    """Full protobuf name of a message or its class."""
    return str(message.DESCRIPTOR.full_name)


def parse(full_name: str, data: bytes) -> Message:
    """Decode a message of any type whose module was imported. Raises Permanent."""
    try:
        descriptor = descriptor_pool.Default().FindMessageTypeByName(full_name)
        return message_factory.GetMessageClass(descriptor).FromString(data)
    except KeyError:
        raise Permanent(f"unknown message type {full_name!r}") from None
    except DecodeError as error:
        raise Permanent(f"{full_name} of {len(data)} bytes can't be decoded: {error}") from error


def to_headers(event: Event) -> list[tuple[str, bytes]]:
    """The record headers that, with the serialised message as value, carry an event."""
    fields = {
        "ce_specversion": "1.0", "ce_id": event.id, "ce_type": type_name(event.message),
        "ce_source": f"/forgerl/{event.stream.partition('.')[0]}", "ce_time": event.time.isoformat(),
        "ce_subject": event.key, "ce_sequence": str(event.version),
        "ce_correlationid": event.cause.correlation_id, "ce_causationid": event.cause.causation_id,
        "traceparent": event.cause.traceparent, "content-type": "application/protobuf",
    }  # fmt: skip
    return [(name, value.encode()) for name, value in fields.items()]


def stream_and_version(headers: Headers) -> tuple[str, int]:
    """Where a record belongs, without decoding it. Raises Permanent."""
    identity = next((value for name, value in headers if name == "ce_id"), b"").decode("utf-8", "replace")
    stream, at, version = identity.rpartition("@")
    if not at or not stream or not version.isdecimal() or int(version) < 1:
        raise Permanent(f"ce_id {identity!r} is not stream@version")
    return stream, int(version)


def from_record(headers: Headers, value: bytes) -> Event:
    """The event that a record carries. Raises Permanent when it carries none."""
    pairs = list(headers)
    stream, version = stream_and_version(pairs)
    texts = {name: data.decode("utf-8", "replace") for name, data in pairs}
    try:
        time = datetime.fromisoformat(texts["ce_time"])
        cause = Cause(texts["ce_correlationid"], texts.get("ce_causationid", ""), texts.get("traceparent", ""))
        return Event(stream, version, time, parse(texts["ce_type"], value), cause)
    except (KeyError, ValueError) as error:
        raise Permanent(f"record {stream}@{version}: bad or missing header: {error}") from error


def to_state(event: Event) -> bytes:
    """What the event store keeps of an event, beside stream, version and type."""
    state = Envelope(
        correlation_id=event.cause.correlation_id,
        causation_id=event.cause.causation_id,
        traceparent=event.cause.traceparent,
        data=event.message.SerializeToString(deterministic=True),
    )
    state.time.FromDatetime(event.time)
    return state.SerializeToString(deterministic=True)


def from_state(stream: str, version: int, full_name: str, state: bytes) -> Event:
    """The event that the event store kept. Raises Permanent when it can't be read."""
    envelope = Envelope.FromString(state)
    cause = Cause(envelope.correlation_id, envelope.causation_id, envelope.traceparent)
    time = envelope.time.ToDatetime(tzinfo=UTC)
    return Event(stream, version, time, parse(full_name, envelope.data), cause)
