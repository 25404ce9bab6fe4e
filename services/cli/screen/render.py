"""From a snapshot to something that rich prints, or to one plain line. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from forgerl.gateway.v1 import run_service_pb2 as runs_pb
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from services.cli.screen.snapshot import NOT_YET, Snapshot
from services.client.driver import Progress
from services.client.evaluation import EvaluationResult

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """The last `width` means of neighbours, between the smallest and the largest."""
    if not values:
        return ""
    size = max(1, -(-len(values) // width))
    means = [sum(values[i : i + size]) / len(values[i : i + size]) for i in range(0, len(values), size)]
    low, high = min(means), max(means)
    span = high - low or 1.0
    return "".join(_BARS[min(7, int((value - low) / span * 8))] for value in means)


def _mix(wanted: Mapping[str, float], achieved: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {achieved.get(name, 0):.2f}/{wanted[name]:.2f}" for name in sorted(wanted))


def _number(value: float | None, form: str = ".3f") -> str:
    return "–" if value is None else format(value, form)


def screen(snapshot: Snapshot, progress: Progress | None) -> RenderableType:
    """The whole picture."""
    parts: list[RenderableType] = [_head(snapshot, progress)]
    if progress and progress.evaluations and progress.evaluated < progress.evaluations:
        bar = Table.grid(padding=(0, 1))
        share = f"{progress.evaluated}/{progress.evaluations}"
        bar.add_row("held-out", ProgressBar(progress.evaluations, progress.evaluated, width=40), share)
        parts.append(bar)
    parts += [_curves(snapshot), _queue(snapshot), _engines(snapshot)]
    for note in progress.notes[-2:] if progress else ():
        parts.append(Text(note, style="dim"))
    title = f"run {snapshot.run.run_id}" if snapshot.run else "run"
    return Panel(Group(*parts), title=title, title_align="left", border_style="cyan")


def _head(snapshot: Snapshot, progress: Progress | None) -> Text:
    run = snapshot.run or (progress.run if progress else None)
    if run is None:
        return Text(snapshot.missing, style="dim" if snapshot.missing == NOT_YET else "red")
    phase = progress.phase.replace("_", " ") if progress else ""
    end = f"/{run.spec.end.steps}" if run.spec.end.HasField("steps") else ""
    policy = run.policy_step if run.HasField("policy_step") else "–"
    text = f"{phase or 'watching'} · step {run.steps}{end} · policy {policy} · episodes {run.episodes_sealed}"
    text += f"/{run.episodes_submitted} · held-out {run.evaluations_sealed}/{run.evaluations_submitted}"
    return Text(text + (f" · {run.end_reason}" if run.end_reason else ""), style="bold")


def _curves(snapshot: Snapshot) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    rewards = snapshot.series("reward_mean")
    table.add_row("reward", _number(rewards[-1] if rewards else None), Text(sparkline(rewards), style="green"))
    names = sorted({n for step in snapshot.steps[-1:] for n in step.metrics if n.startswith("success.")})
    for name in names:
        series = snapshot.series(name)
        table.add_row(name.removeprefix("success."), _number(series[-1]), Text(sparkline(series), style="blue"))
    return table


def _queue(snapshot: Snapshot) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    window, ledger = snapshot.window, snapshot.ledger
    if window:
        where = f"head {window.head} · window {window.window_items} · queue {window.queue_items}"
        stall = f"stall {window.measured_stall_share:.1%}"
        table.add_row("window", f"{where} · in flight {window.in_flight_items} · {stall}")
        table.add_row("mix", _mix(window.wanted_mix, window.achieved_mix))
    if ledger:
        dropped = "  ".join(f"{reason} {count}" for reason, count in sorted(ledger.dropped.items())) or "none"
        table.add_row("ledger", f"trained {ledger.trained} · in flight {ledger.in_flight} · dropped {dropped}")
        stale = f"mean {ledger.staleness_mean:.2f}, largest {ledger.staleness_max}"
        order = f"mean {ledger.out_of_order_mean:.2f}, largest {ledger.out_of_order_max}"
        table.add_row("staleness", f"{stale} steps · out of order {order} items")
    return table


def _engines(snapshot: Snapshot) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for worker in snapshot.workers:
        table.add_row(
            worker.worker_id, worker.state, f"policy {worker.policy_step}", f"{worker.leases} calls", worker.engine_url
        )
    return table


def plain(snapshot: Snapshot, progress: Progress | None) -> str:
    """One line for a terminal that can't redraw, or a log."""
    run = snapshot.run or (progress.run if progress else None)
    if run is None:
        return snapshot.missing
    parts = [progress.phase if progress else "watching", f"step {run.steps}"]
    if progress and progress.evaluated < progress.evaluations:
        parts.append(f"held-out {progress.evaluated}/{progress.evaluations}")
    parts.append(f"reward {_number(snapshot.latest('reward_mean'))}")
    successes = sorted({n for step in snapshot.steps[-1:] for n in step.metrics if n.startswith("success.")})
    parts += [f"{name.removeprefix('success.')} {_number(snapshot.latest(name), '.2f')}" for name in successes]
    parts.append(f"episodes {run.episodes_sealed}/{run.episodes_submitted}")
    if snapshot.window:
        parts.append(f"head {snapshot.window.head} in flight {snapshot.window.in_flight_items}")
    if snapshot.ledger:
        parts.append(f"staleness {snapshot.ledger.staleness_mean:.2f}")
    return " · ".join(parts)


def closing_line(run: runs_pb.RunView, evaluations: Iterable[EvaluationResult | None] = ()) -> str:
    """What remains on the terminal, or in a log, of a run that was followed to its end."""
    parts = [f"{run.steps} steps", f"{run.episodes_sealed} episodes"]
    if "reward_mean" in run.metrics:
        parts.append(f"reward {_number(run.metrics['reward_mean'])}")
    results = [result.domains for result in evaluations if result]
    for name in sorted({name for domains in results for name in domains}):
        parts.append(f"held-out {name} " + " → ".join(_number(d[name].rate, ".2f") for d in results if name in d))
    return f"forgerl: run {run.run_id} has ended ({run.end_reason}): {' · '.join(parts)}"
