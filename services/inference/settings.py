"""Settings of the sidecar and of the two programs beside it; refuses unknown keys in each."""

from pathlib import Path

from pydantic import Field

from services.kernel.settings import ServiceSettings


class Settings(ServiceSettings, env_prefix="FORGERL_INFERENCE_"):
    """The sidecar: one process an engine."""

    # Names the engine in every signal; also the consumer group, so that each sidecar hears every policy.
    worker_id: str = Field(default="engine-0", pattern=r"^[a-z0-9-]{1,40}$")
    # Where the engine answers HTTP; callers are told this URL.
    engine_url: str = "http://127.0.0.1:7410"
    # gRPC address of the sidecar.
    bind: str = "127.0.0.1:7405"
    # ZMQ address on which to take the engine's KV events, tcp://127.0.0.1:PORT; empty: none are taken, and the router
    # goes by what it routed.
    kv_events_address: str = ""
    # Folder of the KV pool; blocks of policies that nobody serves any more are deleted there. Empty: left alone.
    kv_pool_dir: str = ""
    # Seconds between reports; the router gives a worker up after three missed ones.
    heartbeat_s: float = Field(default=1.0, gt=0)
    # Seconds without an answer after which an engine that still takes connections counts as lost.
    silent_s: float = Field(default=15.0, gt=0)
    # Seconds an HTTP request to the engine may take; loading weights of a big model is the longest.
    engine_timeout_s: float = Field(default=120.0, gt=0)
    # Tokens of the first prompt that an engine sees; 64 or more, see deploy/engine/README.md.
    warm_up_tokens: int = Field(default=96, ge=64)


class EngineSettings(ServiceSettings, env_prefix="FORGERL_ENGINE_"):
    """vLLM as `python -m services.inference.engine` starts it."""

    # Folder of the model; its shape and tokenizer are what policies must have.
    model: Path
    # Address of the HTTP server.
    host: str = "127.0.0.1"
    port: int = 7410
    # ZMQ port of the KV pool on this machine; 0: without a pool.
    kv_pool_port: int = 0
    # Port on which the sidecar listens for KV events; 0: off.
    kv_events_port: int = 0
    # GiB of memory for KV.
    kv_space_gb: int = Field(default=1, ge=1)
    # OpenMP threads; one serves best where engine and trainer share two cores.
    threads: int = Field(default=1, ge=1)
    # Sequences that run at once; more wait in the engine.
    max_seqs: int = Field(default=64, ge=1)
    # Context length in tokens; 0: what the model's config says.
    max_model_tokens: int = Field(default=0, ge=0)
    # Tokens a KV block; the CPU kernels want multiples of 32.
    block_tokens: int = Field(default=32, ge=32, multiple_of=32)
    # Tokens that a policy's draft head guesses before each verification; 0: no speculative decoding.
    speculative_tokens: int = Field(default=0, ge=0, le=8)
    # Parsers of the model's text, by vLLM's names. Reasoning: auto is qwen3 where the tokenizer has a token </think>,
    # and none elsewhere, since it would take all that such a model says for reasoning; empty: none.
    tool_call_parser: str = "hermes"
    reasoning_parser: str = "auto"

    @property
    def cache_dir(self) -> Path:
        """What vLLM keeps between starts; shared by the instances of one checkout."""
        return self.data_dir.parent / "cache" / "vllm"


class KvPoolSettings(ServiceSettings, env_prefix="FORGERL_KV_POOL_"):
    """LMCache's server as `python -m services.inference.kv_pool` starts it."""

    # ZMQ port for engines, HTTP port for health.
    host: str = "127.0.0.1"
    port: int = 7420
    http_port: int = 7421
    # GiB of memory for blocks before they go to `dir` only.
    size_gb: int = Field(default=1, ge=1)
    # Tokens a stored chunk.
    chunk_tokens: int = Field(default=64, ge=32)
    # Folder of the lasting tier (a shared mount, or local); empty: DATA_DIR/l3.
    dir: str = ""

    @property
    def folder(self) -> Path:
        """The lasting tier's folder."""
        return Path(self.dir).absolute() if self.dir else self.data_dir / "l3"
