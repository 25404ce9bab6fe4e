"""What the trainer can be told by its environment: FORGERL_TRAINER_<FIELD>. It refuses what belongs to a run's spec."""

from pydantic import Field

from services.kernel.settings import ServiceSettings


class Settings(ServiceSettings, env_prefix="FORGERL_TRAINER_"):
    """Settings of the trainer."""

    # gRPC address, host:port; loopback by default.
    bind: str = "127.0.0.1:7404"
    # Intra-op threads of torch; one leaves the other cores of a small machine to the engines.
    threads: int = Field(default=1, ge=1)
    # Processes that train together on this machine (FSDP2); under torchrun: what it started. One needs no group.
    processes: int = Field(default=1, ge=1, le=1024)
    # Seconds that a process waits for the others within a step before all of them start again.
    rank_timeout_s: float = Field(default=1800.0, gt=0)
    # Bound of J's first condition: the mean of |g1-g2|^2/|g1+g2|^2 over the last steps; pure noise gives 1.
    grad_noise_bound: float = Field(default=2.0, gt=0)
