"""Which rank this process is: told by torchrun's variables, or alone. It refuses half of them."""

from collections.abc import Mapping
from dataclasses import dataclass

from services.kernel.errors import InvalidInput

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, slots=True)
class Place:
    """`size` processes, this one is `rank`. `launched`: they were started from outside, by torchrun or a leader."""

    rank: int
    size: int
    launched: bool


def place_of(environment: Mapping[str, str], processes: int) -> Place:
    """This process's place; `processes` is the setting. Raises InvalidInput where it isn't what torchrun started."""
    if "RANK" not in environment and "WORLD_SIZE" not in environment:
        return Place(0, processes, launched=False)
    for name in VARIABLES:
        if not environment.get(name):
            raise InvalidInput(name, "nothing", "what torchrun sets, beside RANK and WORLD_SIZE; or none of them")
    size = int(environment["WORLD_SIZE"])
    if processes not in (1, size):
        raise InvalidInput("FORGERL_TRAINER_PROCESSES", processes, f"1, or the {size} that torchrun started")
    return Place(int(environment["RANK"]), size, launched=True)
