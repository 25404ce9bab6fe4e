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

_OVERVIEWS = {
    "throughput_vs_greedy": "trained items/s, of greedy's",
    "drift_kl_duration": "drift, KL of durations (nats)",
    "drift_kl_difficulty": "drift, KL of difficulty (nats)",
    "lag_mean": "off-policy lag, mean (steps)",
}
_COLUMNS = {
    "greedy": "greedy",
    "W = 1": "windowed_fifo 1",
    "0.05N": "windowed_fifo 0.05N",
    "0.1N": "windowed_fifo 0.1N",
    "0.2N": "windowed_fifo 0.2N",
    "0.3N": "windowed_fifo 0.3N",
    "0.5N": "windowed_fifo 0.5N",
    "N": "windowed_fifo 1N",
    "b": "windowed_fifo b",
    "auto": "windowed_fifo auto 0.05",
    "version window": "version_window",
}


def markdown(rows: Iterable[Row]) -> str:
    """Two overviews a mode, then all rows, grouped."""
    grouped: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        grouped.setdefault(_key_of(row), []).append(row)
    overviews = [
        f"## {mode}: {label}\n\n{overview([group for key, group in grouped.items() if key[0] == mode], name)}\n"
        for mode in ("rolling", "cohort")
        for name, label in _OVERVIEWS.items()
    ]
    return "\n".join([*overviews, "## All figures\n", *(f"{_title(k)}\n\n{table(g)}\n" for k, g in grouped.items())])


def overview(groups: Iterable[Sequence[Row]], name: str) -> str:
    """One figure: a line a queue, a column a policy."""
    lines = [f"| durations, C, N | {' | '.join(_COLUMNS)} |", "|" + "---|" * (len(_COLUMNS) + 1)]
    for group in groups:
        found = {f"{row['policy']} {row['window']}".strip(): row for row in group}
        cells = [f"{float(found[key][name]):.3f}" if key in found else "" for key in _COLUMNS.values()]
        lines.append(f"| {_title(_key_of(group[0])).split(', ', 1)[1]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _key_of(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in _KEY)


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
