"""The study's pictures: what a window costs, what it lets drift, where "auto" lands. Draws only what the rows hold."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from loadtests.scheduler.study import Row

_COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#8d6a9f")
_LABELS = {
    "lognormal": "log-normal (fitted)",
    "pareto": "Pareto (fitted)",
    "lognormal_group8": "groups of 8",
    "narrow": "narrow",
}


def draw_plots(rows: Sequence[Row], folder: Path) -> list[Path]:
    """The pictures that the rows are enough for."""
    plain = [
        row
        for row in rows
        if row["deadline_quantile"] == 1.0 and row["discard_share"] == 0.0 and row["trainer_load"] == 0.8
    ]
    engines = max({row["engines"] for row in plain}, key=lambda count: sum(row["engines"] == count for row in plain))
    main = [row for row in plain if row["engines"] == engines]
    return [
        _by_window(main, folder / "windowed-fifo-rate.png", "throughput_vs_greedy", "trained items/s, of greedy's"),
        _by_window(main, folder / "windowed-fifo-drift.png", "drift_kl_duration", "drift: KL of durations (nats)"),
        _by_reach(main, folder / "windowed-fifo-rule.png"),
        _frontier(main, folder / "windowed-fifo-auto.png"),
    ]


def _fixed(rows: Sequence[Row], **wanted: object) -> list[Row]:
    """Rows of windows that stand still, by window."""
    found = [
        row
        for row in rows
        if row["policy"] == "windowed_fifo"
        and not str(row["window"]).startswith("auto")
        and all(row[name] == value for name, value in wanted.items())
    ]
    return sorted(found, key=lambda row: float(row["window_share"]))


def _column(rows: Sequence[Row], name: str) -> list[float]:
    return [float(row[name]) for row in rows]


def _by_window(rows: Sequence[Row], path: Path, name: str, label: str) -> Path:
    """Window against a figure: a row of panels a mode, a panel a regime, a line a length of the queue."""
    regimes = [regime for regime in _LABELS if any(row["durations"] == regime for row in rows)]
    figure = Figure(figsize=(3.2 * len(regimes), 5.6), layout="constrained")
    panels = figure.subplots(2, len(regimes), sharex=True, sharey="row", squeeze=False)
    for line, mode in enumerate(("rolling", "cohort")):
        for column, regime in enumerate(regimes):
            axes: Axes = panels[line][column]
            ratios = sorted({int(row["queue_over_inflight"]) for row in rows})
            for colour, ratio in zip(_COLOURS, ratios, strict=False):
                found = _fixed(rows, mode=mode, durations=regime, queue_over_inflight=ratio)
                if found:
                    shares, values = _column(found, "window_share"), _column(found, name)
                    axes.plot(shares, values, "o-", color=colour, markersize=3, linewidth=1.2, label=f"N = {ratio} C")
            axes.axvline(0.3, color="#888888", linewidth=0.8, linestyle=":")
            axes.set_xscale("log")
            axes.set_title(f"{mode}, {_LABELS[regime]}", fontsize=9)
            axes.tick_params(labelsize=8)
        panels[line][0].set_ylabel(label, fontsize=8)
    panels[0][0].legend(fontsize=7)
    figure.supxlabel("window W / N (dotted: 0.3)", fontsize=9)
    return _save(figure, path)


def _by_reach(rows: Sequence[Row], path: Path) -> Path:
    """Rolling throughput against N + W over C d_max / d_mean: that it is nearly one curve is the rule of thumb."""
    figure = Figure(figsize=(5.6, 3.8), layout="constrained")
    axes = figure.subplots()
    for colour, (regime, label) in zip(_COLOURS, _LABELS.items(), strict=True):
        found = _fixed(rows, mode="rolling", durations=regime)
        reach = [
            (1.0 + float(row["window_share"])) * float(row["queue_over_inflight"]) / float(row["longest_over_mean"])
            for row in found
        ]
        axes.plot(reach, _column(found, "throughput_vs_greedy"), "o", color=colour, markersize=4, label=label)
    axes.axvline(1.0, color="#888888", linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_xlabel("(N + W) / (C d_max / d_mean)", fontsize=9)
    axes.set_ylabel("rolling: trained items/s, of greedy's", fontsize=9)
    axes.legend(fontsize=8)
    return _save(figure, path)


def _frontier(rows: Sequence[Row], path: Path) -> Path:
    """Throughput against drift at the longest queue: the fixed windows' line, 0.3 N and auto marked on it."""
    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    panels = figure.subplots(1, 2, squeeze=False)
    longest = max(int(row["queue_over_inflight"]) for row in rows)
    for axes, mode in zip(panels[0], ("rolling", "cohort"), strict=True):
        for colour, (regime, label) in zip(_COLOURS, _LABELS.items(), strict=True):
            of = {"mode": mode, "durations": regime, "queue_over_inflight": longest}
            found = _fixed(rows, **of)
            axes.plot(*_point(found), "-", color=colour, linewidth=1.0, label=label)
            axes.plot(*_point([row for row in found if row["window"] == "0.3N"]), "s", color=colour, markersize=7)
            auto = [row for row in rows if row["window"] == "auto 0.05" and of.items() <= row.items()]
            axes.plot(*_point(auto), "*", color=colour, markersize=12)
        axes.axvline(0.05, color="#888888", linewidth=0.8, linestyle=":")
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, 0.9), max(high, 1.05))
        axes.set_title(f"{mode}, N = {longest} C (square: 0.3 N, star: auto, bound 0.05)", fontsize=9)
        axes.set_xlabel("drift: KL of durations (nats)", fontsize=9)
    panels[0][0].set_ylabel("trained items/s, of greedy's", fontsize=9)
    panels[0][0].legend(fontsize=8)
    return _save(figure, path)


def _point(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    return _column(rows, "drift_kl_duration"), _column(rows, "throughput_vs_greedy")


def _save(figure: Figure, path: Path) -> Path:
    FigureCanvasAgg(figure).print_png(str(path))
    return path
