"""Starts vLLM as this system needs it: `python -m services.inference.engine`. It becomes the engine's HTTP process.

It refuses to serve before the sidecar has opened the gate, and to fetch anything from a hub. Model weights at start
are the folder's; the sidecar replaces them by the run's policy before the first call.
"""

import json
import os
import socket
import sys

import stamina

from services.contract.policy_folder import DRAFTED_MODELS
from services.inference.settings import EngineSettings
from services.inference.speculation import install, speculative_config
from services.kernel.errors import InvalidInput, Transient
from services.kernel.settings import load_settings

SERVED_NAME = "policy"
# A pool takes 12-17 s to start beside an engine; longer than this it won't.
_POOL_S = 180.0


def engine_env(settings: EngineSettings) -> dict[str, str]:
    """What vLLM, torch and LMCache must find in their environment before they are imported."""
    return {
        "OMP_NUM_THREADS": str(settings.threads),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": str(settings.kv_space_gb),
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CACHE_ROOT": str(settings.cache_dir),
        "VLLM_LOGGING_LEVEL": "WARNING",
        "HF_HUB_OFFLINE": "1",
        # Compiling the two sampler kernels costs more at start (6-18 s) than it saves on a small model.
        "TORCHDYNAMO_DISABLE": "1",
        "LMCACHE_LOG_LEVEL": "WARNING",
        "LMCACHE_TRACK_USAGE": "false",
        "LMCACHE_DISABLE_BANNER": "1",
        "PYTHONHASHSEED": "0",
    }


def engine_arguments(settings: EngineSettings) -> list[str]:
    """vLLM's own arguments."""
    arguments = [
        *("--model", _model_path(settings), "--served-model-name", SERVED_NAME),
        *("--host", settings.host, "--port", str(settings.port)),
        *("--dtype", "float32", "--enforce-eager", "--block-size", str(settings.block_tokens)),
        *("--max-num-seqs", str(settings.max_seqs), "--generation-config", "vllm"),
        # A sampled token's probability is the one it was drawn with, temperature and top_p included.
        *("--logprobs-mode", "processed_logprobs"),
        *("--enable-prompt-tokens-details", "--enable-scale-out", "--disable-uvicorn-access-log"),
        *("--enable-auto-tool-choice", "--tool-call-parser", settings.tool_call_parser),
        *("--middleware", "services.inference.gate.EngineGate"),
        *("--distributed-executor-backend", "services.inference.in_process.InProcessExecutor"),
        *("--worker-extension-cls", "services.inference.policy_worker.PolicyWorker"),
    ]
    if parser := _reasoning_parser(settings):
        arguments += ["--reasoning-parser", parser]
    if settings.speculative_tokens:
        arguments += ["--speculative-config", speculative_config(settings.speculative_tokens)]
    if settings.max_model_tokens:
        arguments += ["--max-model-len", str(settings.max_model_tokens)]
    if settings.kv_pool_port:
        arguments += ["--kv-transfer-config", json.dumps(_pool_connector(settings))]
    if settings.kv_events_port:
        endpoint = f"tcp://{settings.host}:{settings.kv_events_port}"
        events = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": endpoint}
        arguments += ["--kv-events-config", json.dumps(events)]
    return arguments


def _model_path(settings: EngineSettings) -> str:
    # The pool keys KV by this text. With a draft head's layer KV has another shape: the same folder, told apart.
    return f"{settings.model}/." if settings.speculative_tokens else str(settings.model)


def _reasoning_parser(settings: EngineSettings) -> str:
    if settings.reasoning_parser != "auto":
        return settings.reasoning_parser
    tokenizer = settings.model / "tokenizer.json"
    added = json.loads(tokenizer.read_text()).get("added_tokens", []) if tokenizer.is_file() else []
    return "qwen3" if any(token.get("content") == "</think>" for token in added) else ""


def _pool_connector(settings: EngineSettings) -> dict[str, object]:
    # With the default timings (10 s, 300 s) a pool that restarts quickly hangs the engine, then kills it.
    extra = {
        "lmcache.mp.host": f"tcp://{settings.host}",
        "lmcache.mp.port": settings.kv_pool_port,
        "lmcache.mp.heartbeat_interval": 1.0,
        "lmcache.mp.mq_timeout": 10.0,
    }
    return {"kv_connector": "LMCacheMPConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}


def check_model(settings: EngineSettings) -> None:
    """Raise InvalidInput where the folder can't be served."""
    variable = "FORGERL_ENGINE_MODEL"
    for name in ("config.json", "tokenizer_config.json"):
        if not (settings.model / name).is_file():
            raise InvalidInput(variable, str(settings.model), f"a folder with {name}")
    if not list(settings.model.glob("*.safetensors")):
        raise InvalidInput(variable, str(settings.model), "a folder with *.safetensors")
    kind = json.loads((settings.model / "config.json").read_text()).get("model_type")
    if settings.speculative_tokens and kind not in DRAFTED_MODELS:
        raise InvalidInput(
            "FORGERL_ENGINE_SPECULATIVE_TOKENS",
            settings.speculative_tokens,
            f"0 with a {kind} model; else {DRAFTED_MODELS}",
        )
    tokenizer = json.loads((settings.model / "tokenizer_config.json").read_text())
    if not (settings.model / "chat_template.jinja").is_file() and not tokenizer.get("chat_template"):
        raise InvalidInput(variable, str(settings.model), "a tokenizer with a chat template")


def await_pool(settings: EngineSettings) -> None:
    """Wait until the KV pool listens: an engine that starts without it dies of it. Raises Transient."""
    if not settings.kv_pool_port:
        return
    try:
        for attempt in stamina.retry_context(on=OSError, timeout=_POOL_S, attempts=None, wait_max=0.5):
            with attempt:
                socket.create_connection((settings.host, settings.kv_pool_port), timeout=1.0).close()
    except OSError as error:
        raise Transient(f"KV pool at {settings.host}:{settings.kv_pool_port}: {error}") from error


def main() -> None:
    """Run the engine in this process until it is stopped."""
    try:
        settings = load_settings(EngineSettings)
        check_model(settings)
    except InvalidInput as error:
        sys.stderr.write(f"engine: {error.message}\n")
        sys.exit(2)
    os.environ.update(engine_env(settings))
    # Imported late: it reads the environment when it is imported.
    from services.inference.vllm_start import prepare, serve

    prepare()
    if settings.speculative_tokens:
        install()
    try:
        await_pool(settings)
    except Transient as error:
        sys.stderr.write(f"engine: {error.message}\n")
        sys.exit(1)
    serve(engine_arguments(settings))


if __name__ == "__main__":
    main()
