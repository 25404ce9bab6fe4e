"""Plays episodes in one process, many side by side, to see what a network can do before any service runs.

It samples at temperature 1 with a key-value cache. It refuses to train, and runs no code but arithmetic.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from transformers import DynamicCache, Qwen3ForCausalLM

from services.cli.model.arithmetic import ArithmeticSandbox
from services.cli.model.demonstrations import tool_results
from services.cli.model.tokenizer import MAX_MODEL_TOKENS, ChatTokenizer
from services.environments.interface import Environment, Message, Task, Verdict

MAX_REPLY_TOKENS = 128


@dataclass(slots=True)
class PlayedEpisode:
    """An episode under way or done. `own[i]`: whether ids[i] was sampled; `logprobs[i]`: at which log-probability."""

    task: Task
    ids: list[int]
    own: list[bool]
    logprobs: list[float]
    messages: list[Message]
    turns: int = 0
    verdict: Verdict = field(default_factory=lambda: Verdict(0.0, "no answer"))


async def play(
    network: Qwen3ForCausalLM,
    tokenizer: ChatTokenizer,
    environment: Environment,
    tasks: Sequence[Task],
    generator: torch.Generator,
) -> list[PlayedEpisode]:
    """One episode a task, each to its answer or its last turn."""
    episodes = [opened(task, environment, tokenizer) for task in tasks]
    sandbox = ArithmeticSandbox()
    running = list(episodes)
    while running:
        replies = sampled(network, [episode.ids for episode in running], tokenizer, generator)
        still: list[PlayedEpisode] = []
        for episode, (ids, logprobs) in zip(running, replies, strict=True):
            extend(episode, ids, logprobs)
            episode.turns += 1
            said = understood(tokenizer.text(ids))
            episode.messages.append(said)
            results = await tool_results(environment, episode.task, said, sandbox)
            if not results:
                episode.verdict = environment.verify(episode.task, str(said["content"]), episode.messages)
            elif episode.turns < environment.max_turns(episode.task):
                episode.messages.extend(results)
                context = tokenizer.rendered(results, (), reply_opened=True)
                if len(episode.ids) + len(context) + MAX_REPLY_TOKENS <= MAX_MODEL_TOKENS:
                    extend(episode, context, None)
                    still.append(episode)
        running = still
    return episodes


def opened(task: Task, environment: Environment, tokenizer: ChatTokenizer) -> PlayedEpisode:
    """An episode whose first prompt is rendered."""
    messages = environment.messages(task)
    ids = tokenizer.rendered(messages, [tool.openai() for tool in environment.tools(task)], reply_opened=True)
    return PlayedEpisode(task, ids, [False] * len(ids), [0.0] * len(ids), messages)


def extend(episode: PlayedEpisode, ids: Sequence[int], logprobs: Sequence[float] | None) -> None:
    """Append ids: sampled where log-probabilities are given, context otherwise."""
    episode.ids.extend(ids)
    episode.own.extend([logprobs is not None] * len(ids))
    episode.logprobs.extend(logprobs if logprobs is not None else [0.0] * len(ids))


def understood(text: str) -> Message:
    """A reply's text as a message: reasoning, content, and the one tool call if it is well formed."""
    reasoning, closed, content = text.removesuffix("<|im_end|>").partition("</think>")
    if not closed:
        return {"role": "assistant", "content": "", "reasoning_content": reasoning}
    before, opened_call, rest = content.partition("<tool_call>")
    said: dict[str, object] = {"role": "assistant", "content": content, "reasoning_content": reasoning}
    if opened_call and rest.endswith("</tool_call>"):
        try:
            function = json.loads(rest.removesuffix("</tool_call>"))
        except ValueError:
            return said
        if isinstance(function, dict) and isinstance(function.get("arguments"), Mapping) and "name" in function:
            said["content"] = before
            said["tool_calls"] = [{"id": "call_0", "type": "function", "function": function}]
    return said


@torch.inference_mode()
def sampled(
    network: Qwen3ForCausalLM,
    prompts: Sequence[Sequence[int]],
    tokenizer: ChatTokenizer,
    generator: torch.Generator,
) -> list[tuple[list[int], list[float]]]:
    """One reply a prompt, up to and with the turn's end (or 128 tokens), with the log-probability of every token."""
    longest = max(map(len, prompts))
    ids_BT = torch.tensor([[tokenizer.padding] * (longest - len(ids)) + list(ids) for ids in prompts])
    seen_BT = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts])
    positions_BT = (seen_BT.cumsum(1) - 1).clamp(min=0)
    cache = DynamicCache(config=network.config)
    replies: list[tuple[list[int], list[float]]] = [([], []) for _ in prompts]
    open_rows = set(range(len(prompts)))
    for _ in range(MAX_REPLY_TOKENS):
        logits_BV = network(
            input_ids=ids_BT, attention_mask=seen_BT, position_ids=positions_BT, past_key_values=cache, use_cache=True
        ).logits[:, -1]
        logprobs_BV = logits_BV.log_softmax(-1)
        ids_BT = torch.multinomial(logprobs_BV.exp(), 1, generator=generator)
        chosen = logprobs_BV.gather(1, ids_BT)[:, 0].tolist()
        for row, token in enumerate(ids_BT[:, 0].tolist()):
            if row in open_rows:
                replies[row][0].append(token)
                replies[row][1].append(chosen[row])
                if token == tokenizer.turn_end:
                    open_rows.discard(row)
        if not open_rows:
            break
        seen_BT = torch.cat([seen_BT, torch.ones_like(ids_BT)], 1)
        positions_BT = positions_BT[:, -1:] + 1
    return replies
