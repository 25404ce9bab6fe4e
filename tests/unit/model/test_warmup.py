"""The warm-up's parts by hand: rates, padding, orthogonal updates; and that a few steps lower the loss."""

import random

import pytest
import torch

from services.cli.model.architecture import new_network, parameter_count
from services.cli.model.demonstrations import Demonstrator
from services.cli.model.episodes import play, understood
from services.cli.model.muon import Muon, orthogonal
from services.cli.model.tokenizer import train_tokenizer
from services.cli.model.tokens import TokenisedConversation
from services.cli.model.warmup import IGNORED, Warmup, WarmupProgress, padded, share_of_rate
from services.environments.registry import environments


@pytest.mark.parametrize(
    ("step", "share"), [(1, 1 / 40), (20, 0.5), (40, 1.0), (500, 1.0), (750, 0.5), (990, 0.03), (1000, 0.03)]
)
def test_share_of_rate(step: int, share: float) -> None:
    assert share_of_rate(step, 1000) == pytest.approx(share)


def test_padding_stands_on_the_right_and_carries_no_label() -> None:
    long = TokenisedConversation("qa", (4, 5, 6), (False, True, True))
    short = TokenisedConversation("qa", (7, 8), (False, True))
    ids_BT, labels_BT = padded([long, short], pad_id=0)
    assert ids_BT.tolist() == [[4, 5, 6], [7, 8, 0]]
    assert labels_BT.tolist() == [[IGNORED, 5, 6], [IGNORED, 8, IGNORED]]


def test_orthogonal_brings_singular_values_near_one() -> None:
    stack = torch.randn(3, 24, 8, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonal(stack))
    assert values.min() > 0.6 and values.max() < 1.3


def test_muon_moves_against_the_gradient_by_its_rate() -> None:
    matrix = torch.nn.Parameter(torch.zeros(8, 8))
    matrix.grad = torch.eye(8)
    Muon([matrix], lr=0.1).step()
    assert matrix.detach().diagonal().mean().item() == pytest.approx(-0.1, abs=0.035)
    assert (matrix.detach() - torch.diag(matrix.detach().diagonal())).abs().max() < 1e-6


def test_the_network_is_small_untied_and_the_same_for_a_seed() -> None:
    tokenizer = train_tokenizer()
    first, again, other = (new_network(tokenizer, seed) for seed in (1, 1, 2))
    assert 0.9e6 < parameter_count(first) < 1.1e6
    assert first.lm_head.weight.data_ptr() != first.model.embed_tokens.weight.data_ptr()
    assert torch.equal(first.lm_head.weight, again.lm_head.weight)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


@pytest.mark.parametrize(
    ("text", "content", "called"),
    [
        ("</think>7<|im_end|>", "7", False),
        ('</think><tool_call>{"name":"python","arguments":{"code":"1"}}</tool_call><|im_end|>', "", True),
        ('</think><tool_call>{"name":"python","arguments":"1"}</tool_call><|im_end|>', None, False),
        ("</think><tool_call>{oops</tool_call><|im_end|>", None, False),
        ("never ended", "", False),
    ],
)
def test_replies_are_understood_as_an_engine_would(text: str, content: str | None, called: bool) -> None:
    said = understood(text)
    assert ("tool_calls" in said) is called
    if content is not None:
        assert said["content"] == content


async def test_an_untrained_network_plays_to_an_end_and_solves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer = train_tokenizer()
    tool = environments()["tool"]
    tasks = [tool.task("heldout", index) for index in range(4)]
    monkeypatch.setattr("services.cli.model.episodes.MAX_REPLY_TOKENS", 12)
    played = await play(new_network(tokenizer, 1), tokenizer, tool, tasks, torch.Generator().manual_seed(1))
    for episode in played:
        assert len(episode.ids) == len(episode.own) == len(episode.logprobs)
        assert 1 <= sum(episode.own) <= 3 * 12
        assert episode.verdict.score == 0.0


def test_a_few_steps_lower_the_loss() -> None:
    tokenizer = train_tokenizer()
    demonstrator = Demonstrator({"tool": environments()["tool"]}, random.Random(1))
    seen: list[WarmupProgress] = []
    warmup = Warmup(new_network(tokenizer, 1), tokenizer, demonstrator, seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("services.cli.model.warmup.DOMAIN_SHARES", {"tool": 1.0})
        patch.setattr("services.cli.model.warmup.BATCH_CONVERSATIONS", 6)
        warmup.run(4, seen.append)
    assert [progress.step for progress in seen] == [1, 2, 3, 4]
    assert seen[-1].loss < seen[0].loss - 0.3
