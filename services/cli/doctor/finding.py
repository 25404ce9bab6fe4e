"""One result of a check."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """`warn` doesn't fail the doctor: something works less well, or is a choice."""

    what: str
    level: Literal["ok", "warn", "fail"]
    says: str
