"""Rows as Markdown tables, one for a queue and a regime of durations. Refuses to round a figure away: three digits."""

from collections.abc import Iterable, Sequence

from loadtests.scheduler.study import Row

_KEY = ("mode", "durations", "engines", "queue_over_inflight", "deadline_quantile", "discard_share", "trainer_load")
_HEAD = (
    "policy",
    "W/N",
    "of greedy's rate",
    "trainer idle",
    "stall s a batch",
    "lag mean",
    "lag p99",
    "KL difficulty",
    "KL duration",
    "W1 duration",
    "dropped",
)


def markdown(rows: Iterable[Row]) -> str:
    """All rows, grouped."""
    grouped: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        grouped.setdefault(tuple(row[name] for name in _KEY), []).append(row)
    return "\n".join(f"{_title(key)}\n\n{table(group)}\n" for key, group in grouped.items())


def _title(key: Sequence[object]) -> str:
    mode, durations, engines, ratio, deadline, discard, load = key
    extra = [
        f"deadline at the {float(str(deadline)):.0%} quantile" if deadline != 1.0 else "",
        f"{float(str(discard)):.0%} of a cohort discarded" if discard else "",
        f"trainer's load {load}" if load != 0.8 else "",
    ]
    return f"### {', '.join([f'{mode}, {durations}, C = {engines}, N = {ratio} C', *filter(None, extra)])}"


def table(rows: Iterable[Row]) -> str:
    """One line a policy."""
    lines = [f"| {' | '.join(_HEAD)} |", "|" + "---|" * len(_HEAD)]
    for row in rows:
        name = f"{row['policy']} {row['window']}".strip()
        rate = f"{row['throughput_vs_greedy']:.3f} ± {row['throughput_ci95']:.3f}"
        figures = (
            f"{row['window_share']:.3f}",
            rate,
            f"{row['trainer_idle_share']:.3f}",
            f"{row['hol_stall_s']:.0f}",
            f"{row['lag_mean']:.2f}",
            f"{row['lag_p99']:.1f}",
            f"{row['drift_kl_difficulty']:.4f} ± {row['drift_kl_difficulty_ci95']:.4f}",
            f"{row['drift_kl_duration']:.4f} ± {row['drift_kl_duration_ci95']:.4f}",
            f"{row['drift_w1_duration']:.3f}",
            f"{row['dropped_share']:.3f}",
        )
        lines.append("| " + " | ".join((name, *figures)) + " |")
    return "\n".join(lines)
