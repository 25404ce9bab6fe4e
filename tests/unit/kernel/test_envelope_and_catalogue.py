"""Events, their two packings, and the topics they travel on."""

from datetime import UTC, datetime

import pytest
from forgerl.common.v1 import blob_pb2
from forgerl.events.v1 import gateway_pb2, inference_pb2

from services.kernel.catalogue import Catalogue
from services.kernel.envelope import Cause, Event, from_record, from_state, stream_and_version, to_headers, to_state
from services.kernel.errors import Permanent

CAUSE = Cause("talk", "gateway.run/r@1", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
MESSAGE = gateway_pb2.EpisodeCancelled(episode_id="ep/1", run_id="r", reason="é")
EVENT = Event("gateway.episode/ep/1", 12, datetime(2026, 3, 4, 5, 6, 7, 891011, tzinfo=UTC), MESSAGE, CAUSE)


def test_an_event_knows_its_id_and_key() -> None:
    assert (EVENT.id, EVENT.key) == ("gateway.episode/ep/1@12", "ep/1")
    assert EVENT.as_cause() == Cause("talk", EVENT.id, CAUSE.traceparent)


def test_headers_are_cloud_events_in_binary_mode() -> None:
    assert dict(to_headers(EVENT)) == {
        "ce_specversion": b"1.0",
        "ce_id": b"gateway.episode/ep/1@12",
        "ce_type": b"forgerl.events.v1.EpisodeCancelled",
        "ce_source": b"/forgerl/gateway",
        "ce_time": b"2026-03-04T05:06:07.891011+00:00",
        "ce_subject": b"ep/1",
        "ce_sequence": b"12",
        "ce_correlationid": b"talk",
        "ce_causationid": b"gateway.run/r@1",
        "traceparent": CAUSE.traceparent.encode(),
        "content-type": b"application/protobuf",
    }


def test_both_packings_give_the_event_back() -> None:
    assert from_record(to_headers(EVENT), MESSAGE.SerializeToString()) == EVENT
    assert from_state(EVENT.stream, 12, "forgerl.events.v1.EpisodeCancelled", to_state(EVENT)) == EVENT


@pytest.mark.parametrize("identity", [b"", b"x", b"a@0", b"@1", b"a@-1", b"a@1.0", b"a@", b"\xff\xfe", "a@²".encode()])
def test_an_identity_that_is_none_is_permanent(identity: bytes) -> None:
    with pytest.raises(Permanent):
        stream_and_version([("ce_id", identity)])


@pytest.mark.parametrize("missing", ["ce_id", "ce_type", "ce_time", "ce_correlationid"])
def test_a_record_without_a_header_is_permanent(missing: str) -> None:
    headers = [(name, value) for name, value in to_headers(EVENT) if name != missing]
    with pytest.raises(Permanent):
        from_record(headers, MESSAGE.SerializeToString())


def test_a_body_that_is_no_such_message_is_permanent() -> None:
    with pytest.raises(Permanent, match="can't be decoded"):
        from_record(to_headers(EVENT), b"\xff\xff\xff")


def test_topics_come_from_the_options() -> None:
    catalogue = Catalogue.from_modules([gateway_pb2, inference_pb2])
    assert catalogue.topic_of(gateway_pb2.EpisodeCancelled) == "forgerl.gateway.episode.v1"
    assert catalogue.topic_of("forgerl.events.v1.RunEnded") == "forgerl.gateway.run.v1"
    assert catalogue.topic_of(blob_pb2.BlobRef) is None
    assert catalogue.stream_of(gateway_pb2.RunEnded(run_id="r-1")) == "gateway.run/r-1"
    assert [catalogue.is_lossy(f"forgerl.{name}.v1") for name in ("inference.kv", "gateway.run", "nobody")] == [
        True,
        False,
        False,
    ]
    run = next(topic for topic in catalogue.topics() if topic.name == "forgerl.gateway.run.v1")
    assert (run.key, run.noun, len(run.type_names)) == ("run_id", "gateway.run", 4)


def test_what_has_no_stream_is_permanent() -> None:
    catalogue = Catalogue.from_modules([gateway_pb2])
    with pytest.raises(Permanent, match="run_id is empty"):
        catalogue.stream_of(gateway_pb2.RunEnded())
    with pytest.raises(Permanent, match="not a published event"):
        catalogue.stream_of(blob_pb2.BlobRef())
