"""What workflows and activities say to each other, as JSON: read and written by msgspec, at a tenth of the time.

The form is the SDK's own, so that histories and other workers' payloads are read as before. What msgspec can't hold
(half a surrogate pair, a class it doesn't know) is left to the SDK. It refuses infinite numbers, which JSON doesn't
have: they would be read as missing, and everything that is said here is bounded before (run files, recorded episodes).
"""

from dataclasses import replace
from typing import Any

import msgspec
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    JSONPlainPayloadConverter,
)


class QuickJson(JSONPlainPayloadConverter):
    """The SDK's converter of plain JSON, where msgspec doesn't do."""

    def to_payload(self, value: Any) -> Payload | None:
        """See the SDK's."""
        try:
            data = msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError):
            return super().to_payload(value)
        return Payload(metadata={"encoding": self.encoding.encode()}, data=data)

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        """See the SDK's."""
        try:
            return msgspec.json.decode(payload.data, type=type_hint or Any)
        except (TypeError, msgspec.MsgspecError):
            return super().from_payload(payload, type_hint)


class QuickPayloads(CompositePayloadConverter):
    """The SDK's converters, with that one in the place of its counterpart."""

    def __init__(self) -> None:
        usual = DefaultPayloadConverter().converters.values()
        super().__init__(*(QuickJson() if type(one) is JSONPlainPayloadConverter else one for one in usual))


def data_converter() -> DataConverter:
    """For a client and its workers."""
    return replace(DataConverter.default, payload_converter_class=QuickPayloads)
