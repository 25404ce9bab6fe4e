"""What the reward service can be told by its environment: FORGERL_REWARD_<FIELD>. It refuses weights of terms."""

from pydantic import Field

from services.kernel.settings import ServiceSettings


class Settings(ServiceSettings, env_prefix="FORGERL_REWARD_"):
    """Settings of the reward service."""

    # Address of GET /healthz, host:port; loopback by default.
    health_bind: str = "127.0.0.1:7406"
    # Seconds a verifier may take before the episode counts as not scorable; the built-in ones take milliseconds.
    verifier_deadline_s: float = Field(default=30.0, gt=0)
    # Verifiers that run at once.
    verifiers: int = Field(default=4, ge=1)
