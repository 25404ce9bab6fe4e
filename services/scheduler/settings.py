"""What the scheduler can be told by its environment; a run's numbers are not here, they come with the run."""

from pydantic import NonNegativeInt

from services.kernel.settings import ServiceSettings


class Settings(ServiceSettings, env_prefix="FORGERL_SCHEDULER_"):
    """Settings of one scheduler process."""

    # gRPC address, host:port; loopback by default.
    bind: str = "127.0.0.1:7402"
    # Events taken in one commit, at most: more of them make restarts coarser, fewer make commits the bottleneck.
    max_batch: int = 100
    # Episodes in flight that the whole fleet bears, shared by the active runs according to their fleet_weight; 0: each
    # run has its own bound only, which is right while one run trains at a time.
    fleet_episodes: NonNegativeInt = 0
    # Seconds after a start in which no deadline strikes: whatever ended while the scheduler was away is heard of first.
    deadline_grace_s: float = 10.0
