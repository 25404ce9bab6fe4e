"""A refusal of one rank is raised by all: for work between which ranks don't meet. It refuses to hide other errors."""

from collections.abc import Callable
from typing import TypeVar

from services.trainer.domain.refusal import StepRefused
from services.trainer.ports import Ranks

T = TypeVar("T")


def together(ranks: Ranks, work: Callable[[], T]) -> T:
    """Run `work` at every rank, then raise the first rank's StepRefused that was raised anywhere."""
    result: list[T] = []
    refusal = ""
    try:
        result.append(work())
    except StepRefused as refused:
        refusal = refused.detail
    for detail in ranks.gather(refusal):
        if detail:
            raise StepRefused(detail)
    return result[0]
