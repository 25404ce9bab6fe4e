"""Which rank this process is: told by torchrun's variables, or alone. It refuses half of them."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from services.kernel.errors import InvalidInput

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Place:
    """`size` processes meet at `host`:`port`; this one is `rank`.

    `launched`: they were all started from outside, by torchrun or by rank 0.
    """

    rank: int
    size: int
    host: str
    port: int
    launched: bool

    def variables(self, rank: int) -> dict[str, str]:
        """What tells another process that it is `rank`."""
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self.size),
            "MASTER_ADDR": self.host,
            "MASTER_PORT": str(self.port),
        }


def place_of(environment: Mapping[str, str], processes: int) -> Place:
    """This process's place; `processes` is the setting. Raises InvalidInput where it isn't what torchrun started."""
    if "RANK" not in environment and "WORLD_SIZE" not in environment:
        return Place(0, processes, LOOPBACK, free_port() if processes > 1 else 0, launched=False)
    for name in VARIABLES:
        if not environment.get(name):
            raise InvalidInput(name, "nothing", f"all of {', '.join(VARIABLES)}, as torchrun sets them; or none")
    size = int(environment["WORLD_SIZE"])
    if processes not in (1, size):
        raise InvalidInput("FORGERL_TRAINER_PROCESSES", processes, f"1, or the {size} that torchrun started")
    host, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    return Place(int(environment["RANK"]), size, host, port, launched=True)


def free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
