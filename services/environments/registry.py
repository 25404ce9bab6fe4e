"""The environments by name: the built-in ones, and those that other packages declare under "forgerl.environments".

An entry point names a callable without arguments that returns an Environment. It refuses a name that is taken.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points

from services.environments.interface import Environment, UnknownEnvironment

ENTRY_POINT_GROUP = "forgerl.environments"


def reasoning() -> Environment:
    """Sums, divisors and letters, from reasoning-gym."""
    # Imported late: reasoning-gym takes seconds to import, and a process that only asks for names needs none of it.
    from services.environments.reasoning import ReasoningEnvironment

    return ReasoningEnvironment()


def tool() -> Environment:
    """Arithmetic with a Python tool."""
    from services.environments.tool import ToolEnvironment

    return ToolEnvironment()


def qa() -> Environment:
    """Questions over the shipped signatures."""
    from services.environments.corpus import shipped_corpus
    from services.environments.qa import QaEnvironment

    return QaEnvironment(shipped_corpus())


BUILT_IN: Mapping[str, Callable[[], Environment]] = {
    "reasoning": reasoning,
    "tool": tool,
    "qa": qa,
}


class Catalogue(Mapping[str, Environment]):
    """Environments by name, each made when it is first asked for."""

    def __init__(self, makers: Mapping[str, Callable[[], Environment]]) -> None:
        self._makers = dict(makers)
        self._made: dict[str, Environment] = {}

    def __getitem__(self, name: str) -> Environment:
        """The environment of that name. Raises UnknownEnvironment (not KeyError): it lists what is allowed."""
        if name not in self._makers:
            raise UnknownEnvironment(f"environment: {name!r} given, allowed: {', '.join(sorted(self._makers))}")
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def environments() -> Mapping[str, Environment]:
    """All environments of this installation. Raises ValueError when another package takes a name that is in use."""
    makers = dict(BUILT_IN)
    for entry_point in entry_points(group=ENTRY_POINT_GROUP):
        if entry_point.name in makers:
            raise ValueError(
                f"environment {entry_point.name!r} of {entry_point.value} has a name that is already taken"
            )
        makers[entry_point.name] = entry_point.load()
    return Catalogue(makers)
