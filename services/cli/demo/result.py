"""What a demo comes to: numbers, as a table for people and as JSON for programs. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from forgerl.scheduler.v1 import scheduler_service_pb2 as scheduler_pb
from forgerl.trainer.v1 import policy_service_pb2 as policy_pb
from rich.table import Table

from services.cli.demo.audit import Audit
from services.client import Progress
from services.client.evaluation import EvaluationResult

_ENDS = 5


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Everything a demo measured. Times in seconds; `training_s`: from the first policy to the run's end."""

    progress: Progress
    ledger: scheduler_pb.RunLedger
    steps: Sequence[policy_pb.StepMetrics]
    audit: Audit
    wall_s: float
    first_sample_s: float
    training_s: float
    peak_rss_mb: int

    def series(self, name: str) -> list[float]:
        return [step.metrics[name] for step in self.steps if name in step.metrics]

    def mean(self, name: str) -> float:
        values = self.series(name)
        return sum(values) / len(values) if values else 0.0

    def reward_ends(self) -> tuple[float, float]:
        """Mean reward of the first and of the last five steps."""
        rewards = self.series("reward_mean")
        first, last = rewards[:_ENDS], rewards[-_ENDS:]
        return (sum(first) / len(first), sum(last) / len(last)) if rewards else (0.0, 0.0)

    def tokens(self) -> int:
        return int(sum(self.series("tokens")))

    def as_json(self) -> dict[str, Any]:
        first, last = self.reward_ends()
        return {
            "heldout_before": _rates(self.progress.before),
            "heldout_after": _rates(self.progress.after),
            "heldout_before_95": _intervals(self.progress.before),
            "heldout_after_95": _intervals(self.progress.after),
            "heldout_tasks": {name: found.counted for name, found in _domains(self.progress.after).items()},
            "reward_first": first,
            "reward_last": last,
            "steps": int(self.progress.run.steps),
            "episodes": self.audit.submitted + self.audit.evaluations,
            "episodes_trained": self.audit.trained,
            "tokens": self.tokens(),
            "wall_s": round(self.wall_s, 1),
            "first_sample_s": round(self.first_sample_s, 1),
            "training_s": round(self.training_s, 1),
            "peak_rss_mb": self.peak_rss_mb,
            "lost": len(self.audit.lost),
            "duplicated": len(self.audit.duplicated),
            "max_logprob_diff": max(self.series("logprob_diff_max"), default=0.0),
            "staleness_mean": self.ledger.staleness_mean,
            "staleness_max": self.ledger.staleness_max,
            "out_of_order_mean": self.ledger.out_of_order_mean,
            "out_of_order_max": self.ledger.out_of_order_max,
            "merge_factor": self.mean("merge_factor"),
            "J": next(iter(reversed(self.series("J"))), 0.0),
            "dropped": dict(self.ledger.dropped),
            "stall_share": self.ledger.measured_stall_share,
        }


def _domains(result: EvaluationResult | None) -> dict[str, Any]:
    return result.domains if result else {}


def _rates(result: EvaluationResult | None) -> dict[str, float]:
    return {name: round(found.rate, 4) for name, found in _domains(result).items()}


def _intervals(result: EvaluationResult | None) -> dict[str, list[float]]:
    return {name: [round(end, 4) for end in found.interval()] for name, found in _domains(result).items()}


def heldout_table(result: DemoResult) -> Table:
    """Held-out success before and after, with 95% intervals."""
    table = Table(title="held-out success (95% interval)", title_justify="left", box=None)
    for column in ("domain", "tasks", "before", "after"):
        table.add_column(column, justify="left" if column == "domain" else "right")
    before, after = _domains(result.progress.before), _domains(result.progress.after)
    for name in sorted({*before, *after}):
        tasks = [str(found[name].counted) for found in (before, after) if name in found]
        table.add_row(name, "/".join(dict.fromkeys(tasks)), _cell(before.get(name)), _cell(after.get(name)))
    return table


def _cell(found: Any) -> str:
    if found is None:
        return "–"
    low, high = found.interval()
    return f"{found.rate:.2f} ({low:.2f}–{high:.2f})"


def numbers_table(result: DemoResult) -> Table:
    """Everything else, a line each."""
    said, ledger = result.as_json(), result.ledger
    table = Table(box=None, show_header=False)
    rows = (
        ("reward, first and last 5 steps", f"{said['reward_first']:.3f} → {said['reward_last']:.3f}"),
        ("steps", str(said["steps"])),
        ("episodes", f"{said['episodes']} ({result.audit.trained} trained, {result.audit.evaluations} held-out)"),
        ("tokens trained", f"{said['tokens']:,}"),
        ("staleness, steps", f"mean {ledger.staleness_mean:.2f}, largest {ledger.staleness_max}"),
        ("out of order, items", f"mean {ledger.out_of_order_mean:.2f}, largest {ledger.out_of_order_max}"),
        ("merge factor", f"{said['merge_factor']:.2f}"),
        ("J", _yield(result)),
        ("engine − trainer logprob, largest", f"{said['max_logprob_diff']:.1e}"),
        ("lost / duplicated episodes", f"{said['lost']} / {said['duplicated']}"),
        ("time", f"{said['wall_s']:.0f} s in all, first sample after {said['first_sample_s']:.0f} s"),
        ("peak memory of all processes", f"{result.peak_rss_mb / 1024:.1f} GB"),
    )
    for name, value in rows:
        table.add_row(name, value)
    return table


def _yield(result: DemoResult) -> str:
    if not result.steps:
        return "–"
    last = result.steps[-1].metrics
    efficiency = f"{last.get('sample_efficiency', 0):.2f} ± {last.get('sample_efficiency_95', 0):.2f} reward/M tokens"
    holds = [last.get("noise_bounded", 0) > 0, last.get("slope_not_negative", 0) > 0]
    conditions = "both conditions hold" if all(holds) else "a condition does NOT hold: read J with care"
    return f"{last.get('J', 0):.0f} = {last.get('tokens_per_s', 0):.0f} tokens/s × {efficiency} ({conditions})"
