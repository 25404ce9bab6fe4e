"""What prefix merging costs and gains: the pace that it is chosen by, and what it did for a batch.

Figures add up over halves and ranks. It refuses to measure: it is told.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds for a floating-point operation of a whole pass, and for an attention call whatever its size."""

    operation_s: float
    call_s: float


FREE_CALLS = Pace(1e-11, 0.0)
"""Where none was recorded: whatever saves operations is merged."""


@dataclass(frozen=True, slots=True)
class Merging:
    """Of rows up to their last trained token. Operations: floating-point, forward and backward.

    `computed_tokens`: tokens that went through the model. `branch_s`: predicted for branch by branch; `pass_s`:
    measured. `reasons`: why something was not merged.
    """

    branch_tokens: int = 0
    computed_tokens: int = 0
    branch_operations: float = 0.0
    computed_operations: float = 0.0
    branch_s: float = 0.0
    pass_s: float = 0.0
    reasons: tuple[str, ...] = ()

    def plus(self, other: "Merging") -> "Merging":
        """Both together."""
        return Merging(
            self.branch_tokens + other.branch_tokens,
            self.computed_tokens + other.computed_tokens,
            self.branch_operations + other.branch_operations,
            self.computed_operations + other.computed_operations,
            self.branch_s + other.branch_s,
            self.pass_s + other.pass_s,
            tuple(dict.fromkeys((*self.reasons, *other.reasons))),
        )

    def metrics(self) -> dict[str, float]:
        """Factors are >= 1 where merging helps: tokens, operations (theory), and seconds (predicted over measured)."""
        return {
            "branch_tokens": float(self.branch_tokens),
            "tree_tokens": float(self.computed_tokens),
            "merge_factor": _factor(self.branch_tokens, self.computed_tokens),
            "merge_theory": _factor(self.branch_operations, self.computed_operations),
            "merge_achieved": _factor(self.branch_s, self.pass_s),
            "merge_fallback": float(bool(self.reasons)),
        }


def _factor(before: float, after: float) -> float:
    return before / after if before and after else 1.0
