"""submit, episodes, show, why, ledger, trace, cancel: single episodes, and what became of them all."""

from pathlib import Path
from typing import Annotated

import typer

from services.cli.commands.options import EpisodeArgument, InstanceOption, JsonOption, RunArgument


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for command in (submit, episodes, show, why, ledger, trace, cancel):
        app.command()(command)


def submit(
    run: RunArgument,
    domain: Annotated[str | None, typer.Option("--domain", help="A domain of the run.")] = None,
    index: Annotated[int, typer.Option("--index", min=0, help="Number of the task.")] = 0,
    file: Annotated[Path | None, typer.Option("--file", help="Submissions as JSON, one a line.")] = None,
    instance: InstanceOption = None,
) -> None:
    """Submit one task of a domain (a whole group), or what a file holds."""
    from services.cli.episode_command import submit_file, submit_task

    if file is not None:
        submit_file(instance, run, file)
    else:
        submit_task(instance, run, domain, index)


def episodes(
    run: RunArgument,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many lines.")] = 50,
    evaluation: Annotated[bool, typer.Option("--evaluation", help="Evaluation episodes only.")] = False,
    instance: InstanceOption = None,
) -> None:
    """Episodes of a run."""
    from services.cli.episode_command import list_episodes

    list_episodes(instance, run, limit, evaluation=evaluation)


def show(episode: EpisodeArgument, instance: InstanceOption = None) -> None:
    """An episode's message tree."""
    from services.cli.episode_command import show_episode

    show_episode(instance, episode)


def why(episode: EpisodeArgument, as_json: JsonOption = False, instance: InstanceOption = None) -> None:
    """Where an episode was trained, or why not."""
    from services.cli.ledger_command import explain_episode

    explain_episode(instance, episode, as_json=as_json)


def ledger(run: RunArgument, as_json: JsonOption = False, instance: InstanceOption = None) -> None:
    """What became of a run's episodes: totals that add up, and each domain's share."""
    from services.cli.ledger_command import show_ledger

    show_ledger(instance, run, as_json=as_json)


def trace(episode: EpisodeArgument, instance: InstanceOption = None) -> None:
    """An episode's spans, from submission to the step that used it."""
    from services.cli.episode_command import trace_episode

    trace_episode(instance, episode)


def cancel(episode: EpisodeArgument, instance: InstanceOption = None) -> None:
    """Call an episode off."""
    from services.cli.episode_command import cancel_episode

    cancel_episode(instance, episode)
