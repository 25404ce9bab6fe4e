"""What the gateway can be told by its environment.

It refuses unknown FORGERL_GATEWAY_ variables.
"""

from pydantic import Field

from services.kernel.settings import ServiceSettings


class Settings(ServiceSettings, env_prefix="FORGERL_GATEWAY_"):
    """Own fields: FORGERL_GATEWAY_<FIELD>."""

    # Where users and services call (gRPC).
    bind: str = "127.0.0.1:7401"
    # Where agents call (HTTP).
    http_bind: str = "127.0.0.1:7400"
    # Base of the URL that agents are given.
    url: str = Field(default="http://127.0.0.1:7400", validation_alias="FORGERL_GATEWAY_URL")
    # The router, host:port.
    router_address: str = Field(default="127.0.0.1:7403", validation_alias="FORGERL_ROUTER_ADDRESS")
    # Name under which engines serve the policy.
    model: str = "policy"
    # Lifetime of an agent's key; longer than any episode's deadline.
    key_lifetime_s: float = Field(default=6 * 3600.0, gt=0)
    # A call's own deadline: waiting for engines included. Below the SDKs' 600 s, so that the gateway speaks first.
    call_timeout_s: float = Field(default=300.0, gt=0)
    # Calls in flight at once; more are answered 429.
    max_calls: int = Field(default=512, ge=1)
    # Largest body of an agent's request.
    max_body_bytes: int = Field(default=8 * 1024 * 1024, ge=1024)
    # Longest silence in a stream; some clients give up after a while without a byte.
    keep_alive_s: float = Field(default=10.0, gt=0)
    # Episodes kept in memory between their calls.
    open_episodes: int = Field(default=1024, ge=1)
    # Registry names of agents that run files may use, beside the built-in ones; comma-separated.
    agents: str = "tool_loop,openai_script"
