"""One gRPC channel a service, opened when it is first used, closed together."""

import grpc

from services.client.places import Places
from services.kernel.errors import Refused
from services.kernel.rpc import RpcSecurity, connect


class Channels:
    """Channels to the services that `Places` names. Raises Refused for a service whose address isn't known."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._security = RpcSecurity(token=places.token, ca=places.tls_ca)
        self._open: dict[str, grpc.aio.Channel] = {}

    def to(self, service: str) -> grpc.aio.Channel:
        if service not in self._open:
            address = getattr(self._places, service)
            if not address:
                raise Refused(f"address of {service} is not known: set FORGERL_{service.upper()}_ADDRESS")
            self._open[service] = connect(address, self._security)
        return self._open[service]

    async def close(self) -> None:
        for channel in self._open.values():
            await channel.close()
        self._open.clear()
