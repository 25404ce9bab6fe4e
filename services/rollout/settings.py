"""What the rollout service can be told; shared settings come from the kernel."""

from typing import Literal

from pydantic import Field

from services.kernel.settings import ServiceSettings


class RolloutSettings(ServiceSettings, env_prefix="FORGERL_ROLLOUT_"):
    """FORGERL_ROLLOUT_…"""

    # Where health is answered over HTTP, host:port.
    health_bind: str = "127.0.0.1:7407"
    # The gateway's gRPC door, host:port.
    gateway_address: str = Field(default="127.0.0.1:7401", validation_alias="FORGERL_GATEWAY_ADDRESS")
    # Temporal task queue; the instance's name is appended, so that two instances may share a server.
    task_queue: str = "forgerl-episodes"
    # Episodes that one worker process runs at a time; the scheduler's in-flight limit is usually lower.
    episodes: int = Field(default=512, ge=1)
    # One call of the model, queueing included; above the gateway's own limit (300 s), so it only catches a lost one.
    call_timeout_s: float = Field(default=330.0, gt=0)
    # How long failing infrastructure is borne, a step, before the episode is given up as infra.
    patience_s: float = Field(default=600.0, gt=0)
    # What walls stand around tools and black boxes: "bubblewrap", or "none" (only for trusted models and agents).
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    # Warm interpreters for tools: each serves one call at a time.
    sandbox_pool: int = Field(default=3, ge=1, le=64)
    # Address space of one tool program, and of one process of a black box, in bytes.
    tool_memory_bytes: int = Field(default=256 * 1024 * 1024, ge=64 * 1024 * 1024)
    program_memory_bytes: int = Field(default=2 * 1024 * 1024 * 1024, ge=64 * 1024 * 1024)
    # Processes and threads of one tool program, and of one black box.
    tool_processes: int = Field(default=16, ge=2)
    program_processes: int = Field(default=128, ge=4)
    # Space to write to inside, in bytes.
    tmp_bytes: int = Field(default=64 * 1024 * 1024, ge=1024 * 1024)
    # Black boxes that run at a time.
    programs: int = Field(default=8, ge=1)
    # How long a black box whose worker died waits for the next one before it ends itself.
    orphan_s: float = Field(default=30.0, gt=0)
    # The program of the agent "openai_script"; empty: the example that comes with the repository.
    script: str = ""
