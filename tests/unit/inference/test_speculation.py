"""What the engine adds for draft heads, without an engine: the temperatures, the switch, heads that don't fit."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from services.inference.engine import check_model, engine_arguments
from services.inference.settings import EngineSettings
from services.inference.speculation import Switch, expand, load_draft, unfit
from services.kernel.errors import InvalidInput


def settings(model: Path, tokens: int) -> EngineSettings:
    return EngineSettings(model=model, speculative_tokens=tokens, token="t", secret="s")  # type: ignore[call-arg]


def test_every_token_gets_its_requests_temperature() -> None:
    # Requests with 2, 0, 3 and 1 tokens; greedy (0) becomes 1, as the sampler divides by it.
    output = torch.full((6,), torch.nan)
    expand(output, torch.tensor([0.5, 2.0, 0.0, 0.7]), torch.tensor([2, 2, 5, 6], dtype=torch.int32), 0, 1, 32)
    torch.testing.assert_close(output, torch.tensor([0.5, 0.5, 1.0, 1.0, 1.0, 0.7]))
    top_k = torch.zeros(3, dtype=torch.int32)
    expand(top_k, torch.tensor([7, 9], dtype=torch.int32), torch.tensor([1, 3]), 0, 0)
    assert top_k.tolist() == [7, 9, 9]


def head_of(folder: Path, digest: str) -> Path:
    (folder / "draft").mkdir(parents=True)
    (folder / "draft" / "config.json").write_text(json.dumps({"policy_digest": digest}))
    return folder


class Worker:
    """A worker of an engine that speculates, or doesn't."""

    def __init__(self, switch: Switch | None) -> None:
        self.loaded: list[Path] = []
        speculative = None if switch is None else SimpleNamespace(forgerl_switch=switch)
        self.vllm_config = SimpleNamespace(speculative_config=speculative)
        model = SimpleNamespace(load_head=lambda _config, folder: self.loaded.append(folder))
        self.model_runner = SimpleNamespace(drafter=SimpleNamespace(model=model))


def test_a_head_of_the_policy_is_loaded_and_switches_speculation_on(tmp_path: Path) -> None:
    switch = Switch(3)
    worker: Any = Worker(switch)
    assert switch[1] == 0
    assert load_draft(worker, head_of(tmp_path, "abc"), "abc") == ""
    assert worker.loaded == [tmp_path / "draft"] and [switch[n] for n in (0, 1, 64)] == [3, 3, 3]


@pytest.mark.parametrize("digest", ["abc", None])
def test_another_head_or_none_switches_it_off_and_says_why(tmp_path: Path, digest: str | None) -> None:
    switch = Switch(3)
    switch.is_on = True
    worker: Any = Worker(switch)
    folder = head_of(tmp_path, digest) if digest else tmp_path
    why_not = load_draft(worker, folder, "def")
    wanted = "trained for policy abc, not for def" if digest else "the policy has no draft head"
    assert wanted in why_not and why_not == unfit(folder, "def")
    assert worker.loaded == [] and switch[1] == 0


def test_an_engine_without_speculation_looks_for_no_head(tmp_path: Path) -> None:
    assert load_draft(Worker(None), tmp_path, "abc") == ""


def test_speculation_is_asked_of_vllm_only_where_it_is_wanted(tmp_path: Path) -> None:
    assert "--speculative-config" not in engine_arguments(settings(tmp_path, 0))
    arguments = engine_arguments(settings(tmp_path, 2))
    config = json.loads(arguments[arguments.index("--speculative-config") + 1])
    assert config == {"method": "mtp", "num_speculative_tokens": 2, "draft_sample_method": "probabilistic"}
    # KV with a head's layer in it must not be taken for KV without: the pool keys it by the model's path.
    paths = [a[a.index("--model") + 1] for a in (arguments, engine_arguments(settings(tmp_path, 0)))]
    assert paths[0] != paths[1] and Path(paths[0]).resolve() == Path(paths[1]).resolve()


def test_a_model_that_no_head_fits_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "x"}))
    (tmp_path / "model.safetensors").write_bytes(b"")
    check_model(settings(tmp_path, 0))
    with pytest.raises(InvalidInput, match="FORGERL_ENGINE_SPECULATIVE_TOKENS: given 2; allowed 0 with a llama model"):
        check_model(settings(tmp_path, 2))
