"""The demo's picture: reward and success over the steps, and held-out success before and after."""

from pathlib import Path

from services.cli.demo.result import DemoResult


def save_plot(result: DemoResult, path: Path) -> None:
    """Writes a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (curves, bars) = pyplot.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
    _draw_curves(result, curves)
    _draw_bars(result, bars)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _draw_curves(result: DemoResult, axes) -> None:
    rewards = result.series("reward_mean")
    axes.plot(range(1, len(rewards) + 1), rewards, color="black", linewidth=2, label="mean reward")
    names = sorted({name for step in result.steps for name in step.metrics if name.startswith("success.")})
    for name in names:
        points = [(step.step, step.metrics[name]) for step in result.steps if name in step.metrics]
        axes.plot(*zip(*points, strict=True), alpha=0.6, label=name.removeprefix("success."))
    axes.set(xlabel="optimiser step", ylabel="training episodes", title="Reward and success while training")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)


def _draw_bars(result: DemoResult, axes) -> None:
    before = result.progress.before.domains if result.progress.before else {}
    after = result.progress.after.domains if result.progress.after else {}
    names = sorted({*before, *after})
    for shift, found, label, colour in ((-0.2, before, "before", "#bbbbbb"), (0.2, after, "after", "#2a7f62")):
        places = [index + shift for index, name in enumerate(names) if name in found]
        rates = [found[name].rate for name in names if name in found]
        ends = [found[name].interval() for name in names if name in found]
        errors = [
            [max(0.0, rate - low) for rate, (low, _) in zip(rates, ends, strict=True)],
            [max(0.0, high - rate) for rate, (_, high) in zip(rates, ends, strict=True)],
        ]
        axes.bar(places, rates, width=0.4, yerr=errors, capsize=4, label=label, color=colour)
    axes.set_xticks(range(len(names)), names)
    axes.set(ylim=(0, 1), ylabel="success", title="Held-out tasks (95% intervals)")
    axes.legend(frameon=False)
