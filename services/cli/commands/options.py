"""Options that several commands share."""

from typing import Annotated

import typer

InstanceOption = Annotated[
    str | None, typer.Option("--instance", metavar="NAME", help="Local stack; else FORGERL_INSTANCE or 'default'.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object.")]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.")]
EpisodeArgument = Annotated[str, typer.Argument(metavar="EPISODE", help="Id of the episode.")]
