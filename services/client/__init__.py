"""The typed client of a running stack: what the command and notebooks use.

    from services.client import Client
    with Client() as forge:                                   # the instance "default"; or Client(instance="other")
        forge.create_run("first", forge.read_run_file("examples/mixed.toml"))
        forge.drive("first", print)                           # feeds tasks until the run has ended
        for episode in forge.episodes("first"):
            print(episode.submission.episode_id, episode.score.performance)

`AsyncClient` has the same methods as coroutines.
"""

from services.client.core import AsyncClient
from services.client.driver import Driver, Progress
from services.client.places import Places
from services.client.run_file import read_run_file
from services.client.sync import Client

__all__ = ["AsyncClient", "Client", "Driver", "Places", "Progress", "read_run_file"]
