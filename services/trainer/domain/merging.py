"""What prefix merging did for a batch. It adds up over halves and ranks, and refuses to measure: it is told."""

from dataclasses import dataclass


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
