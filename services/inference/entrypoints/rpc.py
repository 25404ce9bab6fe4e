"""gRPC door of the sidecar: translates and calls."""

import math
from typing import Any

from forgerl.inference.v1 import inference_service_pb2 as pb
from forgerl.inference.v1.inference_service_pb2_grpc import InferenceServiceServicer

from services.inference.application import Sidecar
from services.inference.entrypoints.kv_feed import KvFeed
from services.kernel.errors import InvalidInput

_LONGEST_DRAIN_S = 3600.0


class InferenceServicer(InferenceServiceServicer):
    """InferenceService of one worker."""

    def __init__(self, sidecar: Sidecar, feed: KvFeed) -> None:
        self._sidecar, self._feed = sidecar, feed

    async def Drain(self, request: pb.DrainRequest, context: Any) -> pb.DrainResponse:
        if not (math.isfinite(request.deadline_s) and 0 <= request.deadline_s <= _LONGEST_DRAIN_S):
            raise InvalidInput("deadline_s", request.deadline_s, f"0 to {_LONGEST_DRAIN_S:.0f} seconds")
        return pb.DrainResponse(aborted=await self._sidecar.drain(request.deadline_s))

    async def ListCachedBlocks(self, request: pb.ListCachedBlocksRequest, context: Any) -> pb.ListCachedBlocksResponse:
        return self._feed.listing()
