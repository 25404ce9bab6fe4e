"""What the tree tests share: small models, random forests, and training each sample by itself."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from services.trainer.tree.forest import Forest, build_forest
from services.trainer.tree.head import Targets

VOCABULARY = 23


def exact_model(seed: int = 0, *, tied: bool = False, layers: int = 2) -> Any:
    """A Qwen3 in float64 throughout: the library's norms (and eager attention) would round to float32 on the way."""
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=4096,
        tie_word_embeddings=tied,
    )
    config._attn_implementation = "sdpa"
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(config).double()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__ == "Qwen3RMSNorm":
                norm = torch.nn.RMSNorm(len(child.weight), eps=config.rms_norm_eps, dtype=torch.float64)
                norm.weight.data += 0.1 * torch.randn(len(child.weight), dtype=torch.float64)
                setattr(parent, name, norm)
    return model.train()


def random_samples(rng: np.random.Generator, count: int, longest: int) -> list[NDArray[np.int64]]:
    """Samples that branch anywhere: each continues a cut of an earlier one, or starts anew; some are equal or empty."""
    samples = [rng.integers(0, VOCABULARY, int(rng.integers(1, longest + 1)))]
    for _ in range(count - 1):
        kind, stem = rng.random(), samples[int(rng.integers(len(samples)))]
        if kind < 0.1:
            samples.append(stem.copy())
        elif kind < 0.15:
            samples.append(np.empty(0, np.int64))
        elif kind < 0.25:
            samples.append(rng.integers(0, VOCABULARY, 1))
        else:
            cut = stem[: int(rng.integers(0, len(stem) + 1))]
            more = rng.integers(0, VOCABULARY, int(rng.integers(0, max(1, longest - len(cut)))))
            samples.append(np.concatenate([cut, more]))
    return samples


class Case:
    """A forest, some of its sample tokens as targets, and random advantages, temperatures and nuclei for them."""

    def __init__(self, samples: Sequence[NDArray[np.int64]], rng: np.random.Generator, *, plain: bool = False) -> None:
        self.samples = samples
        self.forest: Forest = build_forest(samples)
        depth_N = self.forest.depths_S[self.forest.slots_N]
        self.places_N = np.flatnonzero((depth_N > 0) & (rng.random(len(depth_N)) < 0.7))
        count = len(self.places_N)
        slots_N = self.forest.slots_N[self.places_N]
        self.targets = Targets(
            self.forest.parents_S[slots_N],
            self.forest.token_ids_S[slots_N],
            np.ones(count) if plain else rng.choice([0.7, 1.0, 1.3], count),
            np.ones(count) if plain else rng.choice([0.8, 1.0, 1.0], count),
        )
        self.advantages_N = torch.tensor(rng.normal(size=count))
        self.sampled_N = torch.tensor(-3 + rng.normal(size=count) * 0.3)
        self.rows_N = torch.tensor(np.searchsorted(self.forest.offsets, self.places_N, side="right") - 1)

    def clipped(self, logprobs_N: Tensor, targets_N: NDArray[np.int64]) -> Tensor:
        """A PPO-like loss: each token's own, and not linear in anything."""
        which = torch.from_numpy(targets_N)
        ratio_N = torch.exp(logprobs_N - self.sampled_N[which])
        advantages_N = self.advantages_N[which]
        return -torch.minimum(ratio_N * advantages_N, ratio_N.clamp(0.8, 1.2) * advantages_N).sum()

    def by_sequence(self, logprobs_N: Tensor, targets_N: NDArray[np.int64]) -> Tensor:
        """A loss with a ratio of whole samples, so that every token's gradient depends on all of them."""
        assert len(targets_N) == len(self.places_N)
        order = torch.argsort(torch.from_numpy(targets_N))
        differences_N = (logprobs_N[order] - self.sampled_N) / 8
        sums_B = torch.zeros(len(self.samples), dtype=differences_N.dtype).index_add(0, self.rows_N, differences_N)
        return -(torch.exp(sums_B)[self.rows_N] * self.advantages_N).sum()

    def alone(self, model: Any, loss: Callable[[Tensor, NDArray[np.int64]], Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Loss and gradients with every sample by itself over the library's own attention."""
        parts: list[Tensor] = []
        for sample in self.samples:
            if len(sample):
                parts.append(self.sample_alone(model, torch.from_numpy(sample)))
        everything_N = torch.cat(parts)[torch.from_numpy(self.places_N)]
        value = loss(everything_N, np.arange(len(self.places_N)))
        gradients = torch.autograd.grad(value, list(model.parameters()), allow_unused=True)
        return value.detach(), [torch.zeros(()) if g is None else g for g in gradients]

    def sample_alone(self, model: Any, tokens_T: Tensor) -> Tensor:
        """log p of each token of a sample under the transforms of its targets; 0 at the first."""
        start = self._start(tokens_T)
        temperature_T, top_p_T = torch.ones(len(tokens_T)).double(), torch.ones(len(tokens_T)).double()
        for place, temperature, top_p in zip(
            self.places_N - start, self.targets.temperatures_N, self.targets.top_ps_N, strict=True
        ):
            if 0 <= place < len(tokens_T):
                temperature_T[place], top_p_T[place] = temperature, top_p
        logits_TV = model(input_ids=tokens_T[None], use_cache=False).logits[0, :-1] / temperature_T[1:, None]
        chosen = [torch.zeros(1, dtype=torch.float64)]
        for logits_V, token, top_p in zip(logits_TV, tokens_T[1:], top_p_T[1:], strict=True):
            chosen.append(nucleus_logprob(logits_V, int(token), float(top_p))[None])
        return torch.cat(chosen)

    def _start(self, tokens_T: Tensor) -> int:
        for index, sample in enumerate(self.samples):
            if len(sample) and sample.ctypes.data == tokens_T.data_ptr():
                return int(self.forest.offsets[index])
        raise AssertionError("not one of the samples")


def nucleus_logprob(logits_V: Tensor, token: int, top_p: float) -> Tensor:
    """Plainly: the smallest set of likeliest tokens whose mass reaches top_p, and the token itself."""
    if top_p >= 1:
        return torch.log_softmax(logits_V, -1)[token]
    probabilities = torch.softmax(logits_V.detach(), -1)
    kept, mass = {token}, 0.0
    for index in torch.argsort(probabilities, descending=True).tolist():
        if mass >= top_p:
            break
        kept.add(index)
        mass += float(probabilities[index])
    inside = sorted(kept)
    return torch.log_softmax(logits_V[inside], -1)[inside.index(token)]


def relative_error(got: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """The largest |got - wanted| / |wanted| by norm, tensor by tensor.

    A gradient that is zero but for rounding (a query that sees one key has none) is held against all tensors' norm.
    """
    norms = [float(w.detach().double().norm()) for w in wanted]
    whole = float(np.linalg.norm(norms)) or 1.0
    return max(
        float((g - w).detach().double().norm()) / (norm if norm > 1e-9 * whole else whole)
        for g, w, norm in zip(got, wanted, norms, strict=True)
    )
