"""PolicyService's answers, from a trainer's own store."""

import math
import shutil
from pathlib import Path
from typing import Any, cast

import pytest
from forgerl.trainer.v1 import policy_service_pb2 as pb
from trainer_bench import RUN, Bench, reference_logprobs, two_turns
from transformers import AutoModelForCausalLM, AutoTokenizer

from services.kernel.errors import InvalidInput, NotFound
from services.trainer.adapters.policy_scorer import PolicyScorer
from services.trainer.entrypoints.rpc import PolicyRpc

CALL = cast(Any, None)


@pytest.fixture
async def trained(bench: Bench, model_folder: Path) -> Bench:
    await bench.create(model_folder)
    model = bench.policy_model((await bench.published())[0])
    group = [(two_turns("a", 1, model), 1.0, True), (two_turns("b", 2, model), 0.0, True)]
    await bench.feed(await bench.batch(1, [group]))
    return bench


def rpc(bench: Bench) -> PolicyRpc:
    return PolicyRpc(bench.runs, bench.training, bench.blobs, PolicyScorer())


async def test_policies_and_metrics_are_listed(trained: Bench):
    policies = (await rpc(trained).ListPolicies(pb.ListPoliciesRequest(run_id=RUN), CALL)).policies
    assert [policy.step for policy in policies] == [0, 1]
    steps = (await rpc(trained).GetMetrics(pb.GetMetricsRequest(run_id=RUN), CALL)).steps
    assert [step.step for step in steps] == [1]
    assert steps[0].metrics["episodes_trained"] == 2


@pytest.mark.parametrize("step", [0, 1])
async def test_tokens_are_scored_under_the_policy_that_was_asked_for(trained: Bench, step: int):
    ids = [5, 9, 2, 30, 17, 4]
    request = pb.ScoreTokensRequest(run_id=RUN, policy_step=step, token_ids=ids)
    answered = (await rpc(trained).ScoreTokens(request, CALL)).logprobs
    policies = (await rpc(trained).ListPolicies(pb.ListPoliciesRequest(run_id=RUN), CALL)).policies
    expected = [0.0, *reference_logprobs(trained.policy_model(policies[step]), ids)]
    assert list(answered) == pytest.approx(expected, abs=1e-5)
    assert math.isfinite(sum(answered))


async def test_a_policy_fetched_to_score_with_is_not_left_behind(
    trained: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    scratch, local = tmp_path / "scratch", trained.blobs.fetch_folder
    scratch.mkdir()
    fetched: list[Path] = []

    async def fetch_folder(uri: str, to: Path) -> Path:
        """As a store does that is not on this machine."""
        shutil.copytree(await local(uri, to), to, dirs_exist_ok=True)
        fetched.append(to)
        return to

    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.setattr(trained.blobs, "fetch_folder", fetch_folder)
    request = pb.ScoreTokensRequest(run_id=RUN, policy_step=1, token_ids=[5, 9, 2])
    assert len((await rpc(trained).ScoreTokens(request, CALL)).logprobs) == 3
    assert fetched[0].is_relative_to(scratch) and not list(scratch.iterdir())


async def test_unknown_runs_policies_and_tokens_are_named(trained: Bench):
    with pytest.raises(NotFound, match="run other"):
        await rpc(trained).GetMetrics(pb.GetMetricsRequest(run_id="other"), CALL)
    with pytest.raises(NotFound, match="policy 7"):
        await rpc(trained).ScoreTokens(pb.ScoreTokensRequest(run_id=RUN, policy_step=7, token_ids=[1]), CALL)
    with pytest.raises(InvalidInput, match=r"token_ids: given 99; allowed 0\.\.47"):
        await rpc(trained).ScoreTokens(pb.ScoreTokensRequest(run_id=RUN, token_ids=[1, 99]), CALL)


async def test_a_published_policy_is_an_ordinary_model_directory(trained: Bench):
    policies = (await rpc(trained).ListPolicies(pb.ListPoliciesRequest(run_id=RUN), CALL)).policies
    folder = policies[1].uri.removeprefix("file://")
    assert AutoModelForCausalLM.from_pretrained(folder).config.vocab_size == 48
    assert AutoTokenizer.from_pretrained(folder).chat_template == "{{ messages }}"
