"""Real engines and pools for tests, and tiny models made on the spot. Refuses to leave a process behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx
import torch
from brokers import free_port
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from services.inference.adapters.vllm_http import VllmEngine
from services.inference.domain.policies import Policy

ROOT = Path(__file__).resolve().parents[3]
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_model(folder: Path, *, tied: bool, seed: int) -> Path:
    """A random Qwen3 of 0.3 M parameters over bytes."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(["<think>", "</think>", "<tool_call>", "</tool_call>"])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = _TEMPLATE
    config = Qwen3Config(
        vocab_size=320, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, intermediate_size=128, tie_word_embeddings=tied, max_position_embeddings=4096,
        eos_token_id=258, pad_token_id=256, bos_token_id=None, dtype="float32", initializer_range=0.1,
    )  # fmt: skip
    torch.manual_seed(seed)
    Qwen3ForCausalLM(config).float().save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def forward_logprobs(folder: Path, prompt: Sequence[int], output: Sequence[int]) -> list[float]:
    """log p of each output token by a float32 forward of transformers: the independent implementation."""
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *output]])).logits[0]
    table = torch.log_softmax(logits, dim=-1)
    return [table[len(prompt) - 1 + at, token].item() for at, token in enumerate(output)]


class Process:
    """A program in a group of its own."""

    def __init__(self, module: str, env: dict[str, str], log: Path) -> None:
        self._module, self._env, self._log = module, env, log
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module],
                cwd=ROOT, env={**os.environ, **self._env}, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def wait_healthy(self, url: str, timeout_s: float = 240.0) -> None:
        until = monotonic() + timeout_s
        while monotonic() < until:
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            try:
                if httpx.get(url, timeout=2.0).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            sleep(0.25)
        raise AssertionError(f"{self._module} not healthy within {timeout_s} s: {self._log.read_text()[-3000:]}")

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@dataclass
class Engine:
    """A running engine and how a test speaks to it."""

    process: Process
    url: str
    control: VllmEngine
    policies: int = 0

    async def swap(self, folder: Path, digest: str) -> int:
        """What the sidecar does; how many calls were aborted."""
        before = (await self.control.look()).gate
        aborted = await self.control.close(wait_s=0.0)
        await self.control.load(str(folder), digest)
        if not before.policy_digest:
            await self.control.warm_up(96)
        self.policies += 1
        await self.control.open(Policy("run-1", self.policies, digest, ""), before.boot_id)
        return aborted

    async def generate(self, prompt: Sequence[int], digest: str, tokens: int, **sampling: Any) -> httpx.Response:
        """One call on ids; `sampling` adds to vLLM's sampling parameters."""
        parameters = {"max_tokens": tokens, "logprobs": 0, "ignore_eos": True, "detokenize": False, **sampling}
        body = {"token_ids": list(prompt), "cache_salt": digest, "sampling_params": parameters}
        headers = {"authorization": "Bearer test-token", "x-forgerl-policy": digest}
        async with httpx.AsyncClient(timeout=120.0) as http:
            return await http.post(f"{self.url}/inference/v1/generate", json=body, headers=headers)


def sampled(answer: httpx.Response) -> tuple[list[int], list[float], int, str]:
    """Token ids, logprobs, cached prompt tokens, finish reason."""
    assert answer.status_code == 200, answer.text
    body = answer.json()
    choice = body["choices"][0]
    logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    return (
        choice["token_ids"],
        logprobs,
        body["usage"]["prompt_tokens_details"]["cached_tokens"],
        choice["finish_reason"],
    )


def _env(folder: Path, **own: object) -> dict[str, str]:
    shared = {"FORGERL_TOKEN": "test-token", "FORGERL_SECRET": "test-secret", "FORGERL_DATA_DIR": str(folder / "data")}
    return {**shared, **{name: str(value) for name, value in own.items()}}


@contextmanager
def running_engine(folder: Path, model: Path, pool_port: int = 0, draft_tokens: int = 0) -> Iterator[Engine]:
    """An engine on `model`; its log is in `folder`."""
    port = free_port()
    env = _env(
        folder, FORGERL_ENGINE_MODEL=model, FORGERL_ENGINE_PORT=port, FORGERL_ENGINE_KV_POOL_PORT=pool_port,
        FORGERL_ENGINE_SPECULATIVE_TOKENS=draft_tokens,
    )  # fmt: skip
    process = Process("services.inference.engine", env, folder / f"engine-{port}.log")
    try:
        url = f"http://127.0.0.1:{port}"
        process.wait_healthy(f"{url}/health")
        yield Engine(process, url, VllmEngine(url, "test-token", 60.0))
    finally:
        process.kill()


@contextmanager
def running_pool(folder: Path) -> Iterator[tuple[Process, int, Callable[[], None]]]:
    """A KV pool: its process, its port, and a function that waits until it is healthy."""
    port, http_port = free_port(), free_port()
    env = _env(
        folder, FORGERL_KV_POOL_PORT=port, FORGERL_KV_POOL_HTTP_PORT=http_port, FORGERL_KV_POOL_DIR=folder / "l3"
    )
    process = Process("services.inference.kv_pool", env, folder / "pool.log")

    def wait() -> None:
        process.wait_healthy(f"http://127.0.0.1:{http_port}/healthcheck")

    try:
        wait()
        yield process, port, wait
    finally:
        process.kill()
