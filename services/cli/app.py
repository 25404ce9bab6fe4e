"""Which commands there are. Their modules hold signatures only; what they do is imported when they run."""

import typer

from services.cli.commands import data, dead_letters, demo, episodes, model, policies, replays, runs, stack


def build_app() -> typer.main.Typer:
    """The whole command tree."""
    app = typer.Typer(
        name="forgerl",
        help="Agent RL as event-sourced services: start the stack, train, and see why.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    for module in (stack, runs, episodes, replays, demo):
        module.register(app)
    for name, module, text in (
        ("dlq", dead_letters, "Events that a service could not take."),
        ("policy", policies, "Published policies."),
        ("data", data, "The data pool."),
        ("model", model, "Models without a hub."),
    ):
        group = typer.Typer(help=text, no_args_is_help=True, rich_markup_mode=None)
        module.register(group)
        app.add_typer(group, name=name)
    return app
