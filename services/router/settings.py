"""Settings of the router; refuses unknown keys."""

from pydantic import Field

from services.kernel.settings import ServiceSettings


class Settings(ServiceSettings, env_prefix="FORGERL_ROUTER_"):
    """One process; replicas don't share leases."""

    # gRPC address.
    bind: str = "127.0.0.1:7403"
    # Seconds without a report after which a worker is out: three missed heartbeats.
    heartbeat_lost_s: float = Field(default=3.0, gt=0)
    # Seconds after which a lease that nobody ended lapses.
    lease_s: float = Field(default=600.0, gt=0)
    # Workers whose cost is within this share of the best are drawn from.
    near_tie: float = Field(default=0.05, ge=0, lt=1)
    # A group's first prompt is worth waiting for when its prefill takes at least so many seconds.
    hold_min_s: float = Field(default=0.05, ge=0)
    # Blocks remembered a worker, and of the shared pool.
    index_blocks: int = Field(default=200_000, ge=1)
    # Tokens a chunk of the shared pool; 0: no pool.
    pool_chunk_tokens: int = Field(default=64, ge=0)
    # Mean error of predicted cached tokens above which an alarm is logged.
    cache_error_alarm_tokens: float = Field(default=128.0, gt=0)
