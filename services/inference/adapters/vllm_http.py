"""The engine over HTTP: vLLM's development endpoints, and our gate in front of them. Refuses to hide a failed step."""

import json
import secrets
from collections.abc import Mapping
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from services.inference.domain.engine import Gate, Load, Seen, Shape
from services.inference.domain.policies import Policy
from services.inference.ports import Busy
from services.kernel.errors import Refused, Transient
from services.kernel.logs import get_logger

_ABORT_S = 10.0
# Two requests a look, and a report must be out before the router misses three of them.
_LOOK_S = 0.8


class VllmEngine:
    """One vLLM server with services.inference.gate in it. `timeout_s` bounds loading, the longest request."""

    def __init__(self, url: str, token: str, timeout_s: float) -> None:
        headers = {"authorization": f"Bearer {token}"}
        self._http, self._timeout_s = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout_s), timeout_s
        self._shapes: dict[str, Shape] = {}

    async def look(self) -> Seen:
        """See ports.Engine."""
        gate = _gate(await self._call("GET", "/forgerl/gate", timeout_s=_LOOK_S))
        metrics = (await self._send("GET", "/metrics", timeout_s=_LOOK_S)).text
        if gate.boot_id not in self._shapes:
            models = await self._call("GET", "/v1/models")
            self._shapes = {gate.boot_id: Shape(_block_tokens(metrics), int(models["data"][0]["max_model_len"]))}
        return Seen(gate, _load(metrics), self._shapes[gate.boot_id])

    async def close(self, *, wait_s: float) -> int:
        """See ports.Engine."""
        order = {"open": False, "drain": "wait" if wait_s else "abort", "deadline_s": wait_s or _ABORT_S}
        state = await self._call("POST", "/forgerl/gate", order, timeout_s=wait_s + self._timeout_s)
        if state["in_flight"]:
            raise Transient(f"engine: {state['in_flight']} calls don't end")
        return int(state["aborted"])

    async def load(self, folder: str, policy_digest: str) -> None:
        """See ports.Engine. Only between close and open: the gate's abort has paused generation."""
        order = {"method": "load_policy", "args": [folder, policy_digest]}
        answer = await self._call("POST", "/collective_rpc", order)
        for result in answer["results"]:
            if not result["loaded"]:
                raise Refused(f"policy in {folder}: {result['why_not']}")
            if result.get("no_draft"):
                get_logger().warning("speculation.off", policy_digest=policy_digest, reason=result["no_draft"])
        if not (await self._call("POST", "/reset_prefix_cache"))["success"]:
            raise Transient("engine: the prefix cache could not be cleared")
        await self._call("POST", "/resume")

    async def warm_up(self, tokens: int) -> None:
        """See ports.Engine."""
        ticket = f"warm-up-{secrets.token_hex(8)}"
        await self._call("POST", "/forgerl/gate", {"open": True, "policy_digest": ticket})
        sampling = {"max_tokens": 2, "temperature": 1.0, "logprobs": 0, "detokenize": False, "ignore_eos": True}
        prompt = {"token_ids": [1 + n % 64 for n in range(tokens)], "sampling_params": sampling, "cache_salt": ticket}
        await self._call("POST", "/inference/v1/generate", prompt, headers={"x-forgerl-policy": ticket})
        await self._call("POST", "/forgerl/gate", {"open": False, "policy_digest": ""})

    async def open(self, policy: Policy, boot_id: str) -> None:
        """See ports.Engine."""
        ticket = {"run_id": policy.run_id, "policy_step": policy.step, "policy_digest": policy.digest}
        await self._call("POST", "/forgerl/gate", {"open": True, "boot_id": boot_id, **ticket})

    async def aclose(self) -> None:
        """Let the connections go."""
        await self._http.aclose()

    async def _call(self, method: str, path: str, body: object = None, **options: Any) -> dict[str, Any]:
        answer = await self._send(method, path, body, **options)
        try:
            return answer.json() if answer.content else {}
        except ValueError as error:
            raise Transient(f"engine: {method} {path}: no JSON: {answer.text[:200]!r}") from error

    async def _send(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> httpx.Response:
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_s is None else timeout_s
        content = None if body is None else json.dumps(body)
        sent = {"content-type": "application/json", **(headers or {})} if content else headers
        try:
            answer = await self._http.request(method, path, content=content, headers=sent, timeout=timeout)
        except httpx.ReadTimeout as error:
            raise Busy(f"engine: {method} {path}: no answer in time") from error
        except httpx.HTTPError as error:
            raise Transient(f"engine: {method} {path}: {error!r}") from error
        if answer.is_error:
            raise Transient(f"engine: {method} {path}: {answer.status_code} {answer.text[:200]}")
        return answer


def _gate(state: Mapping[str, Any]) -> Gate:
    run_id, step = state.get("run_id", ""), state.get("policy_step", 0)
    return Gate(state["boot_id"], state["open"], run_id, step, state["policy_digest"], state["in_flight"])


def _load(metrics: str) -> Load:
    totals: dict[str, float] = {}
    wanted = (
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:prompt_tokens",
    )
    lines = "\n".join(line for line in metrics.splitlines() if line.startswith(wanted))
    for family in text_string_to_metric_families(lines + "\n"):
        for sample in family.samples:
            if set(sample.labels) <= {"engine", "model_name"}:
                totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    return Load(
        running=int(totals.get("vllm:num_requests_running", 0)),
        waiting=int(totals.get("vllm:num_requests_waiting", 0)),
        kv_usage=totals.get("vllm:kv_cache_usage_perc", 0.0),
        prompt_tokens_total=int(totals.get("vllm:prompt_tokens_total", 0)),
        cached_prompt_tokens_total=int(totals.get("vllm:prompt_tokens_cached_total", 0)),
    )


def _block_tokens(metrics: str) -> int:
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == "vllm:cache_config_info":
                return int(sample.labels.get("block_size", 0))
    return 0
