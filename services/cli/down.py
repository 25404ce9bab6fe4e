"""`forgerl down`: ends a stack in good order, and what is left of it by force."""

import signal

from rich.console import Console

from services.cli.supervisor import processes
from services.cli.supervisor.instance import Instance
from services.cli.supervisor.opening import running_supervisor

# All graces of the children, one after the other, with room.
_PATIENCE_S = 90.0


def down(instance_name: str | None) -> None:
    """May be called when nothing runs."""
    instance = Instance.named(instance_name)
    console = Console(highlight=False)
    holder = running_supervisor(instance)
    if holder:
        processes.send(holder, signal.SIGTERM)
        for process in processes.wait_gone([holder], _PATIENCE_S):
            processes.send(process, signal.SIGKILL)
    left = processes.reap(instance.dir, grace_s=5.0)
    if holder:
        forced = f"; {left} processes had to be ended" if left else ""
        console.print(f"forgerl: instance {instance.name} is down{forced}")
    elif left:
        console.print(f"forgerl: {left} processes of instance {instance.name} were left over; ended")
    else:
        console.print(f"forgerl: instance {instance.name} was not up")
