"""Compares log-probabilities of every serving engine and the trainer, on tokens that the engine has just sampled."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
from forgerl.router.v1 import router_service_pb2 as router_pb

from services.cli.doctor.finding import Finding
from services.client import AsyncClient
from services.kernel.errors import ForgeError

LIMIT = 1e-3
_ANSWER_S = 30.0


async def check_logprobs(client: AsyncClient) -> AsyncIterator[Finding]:
    """One finding an engine; float32 on both sides should agree to `LIMIT`."""
    workers = await client.workers()
    if not workers:
        yield Finding("engines", "warn", "the router knows none")
    for worker in workers:
        what = f"logprobs {worker.worker_id}"
        if worker.state.lower() != "ready" or not worker.run_id:
            yield Finding(what, "warn", f"{worker.state.lower()}: no run has published a policy yet")
            continue
        try:
            difference, count = await compare(client, worker)
        except (ForgeError, httpx.HTTPError, KeyError) as error:
            yield Finding(what, "fail", f"{type(error).__name__}: {error}")
            continue
        says = f"max |engine - trainer| {difference:.2e} over {count} tokens of policy {worker.policy_step}"
        yield Finding(what, "ok" if difference < LIMIT else "fail", f"{says} (limit {LIMIT:g})")


async def compare(client: AsyncClient, worker: router_pb.WorkerView, max_tokens: int = 64) -> tuple[float, int]:
    """Largest difference and number of tokens. Raises httpx.HTTPError or ForgeError."""
    headers = {"authorization": f"Bearer {client.places.token}", "x-forgerl-policy": worker.policy_digest}
    async with httpx.AsyncClient(base_url=worker.engine_url, headers=headers, timeout=_ANSWER_S) as http:
        question = "Compare engine and trainer on this sentence, and count from one to twenty. " * 4
        chat = {"model": "policy", "messages": [{"role": "user", "content": question}], "max_tokens": max_tokens}
        prompt = (await _post(http, "/v1/chat/completions/render", chat))["token_ids"]
        sampling = {"temperature": 1.0, "top_p": 1.0, "max_tokens": max_tokens, "logprobs": 0, "detokenize": False}
        body = {"model": "policy", "token_ids": prompt, "sampling_params": sampling, "cache_salt": worker.policy_digest}
        choice = (await _post(http, "/inference/v1/generate", {**body, "stream": False}))["choices"][0]
    sampled = choice["token_ids"]
    theirs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    ours = await client.score_tokens(worker.run_id, worker.policy_step, [*prompt, *sampled])
    differences = [abs(a - b) for a, b in zip(theirs, ours[len(prompt) :], strict=True)]
    return max(differences, default=0.0), len(differences)


async def _post(http: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await http.post(path, json=body)
    answer.raise_for_status()
    return answer.json()
