"""How far a draft is from the policy: Kullback-Leibler divergence over the policy's K likeliest tokens and the rest.

Pure. It refuses to let a gradient reach the policy.
"""

import torch
from torch import Tensor


def top_k_divergence(policy_TV: Tensor, draft_TV: Tensor, top_k: int) -> Tensor:
    """KL(policy || draft) in nats for each of T rows of logits; at least float32.

    Both distributions are lumped to K + 1 outcomes: each of the policy's K likeliest tokens, and all others together.
    Lumping can only make the divergence smaller, and it is exact where K reaches the vocabulary.
    """
    policy_TV = policy_TV.detach()
    size = policy_TV.shape[-1]
    chosen_TK = policy_TV.topk(min(top_k, size), dim=-1).indices
    policy_TO, draft_TO = (_lumped(logits, chosen_TK) for logits in (policy_TV, draft_TV))
    return (policy_TO.exp() * (policy_TO - draft_TO)).sum(dim=-1)


def acceptance(policy_TV: Tensor, draft_TV: Tensor) -> Tensor:
    """Probability that a token drawn from the draft is accepted, of T rows of logits: sum over tokens of min(p, q).

    Leviathan et al. 2023, "Fast inference from transformers via speculative decoding", theorem 3.5.
    """
    return torch.minimum(torch.softmax(policy_TV, -1), torch.softmax(draft_TV, -1)).sum(dim=-1)


def _lumped(logits_TV: Tensor, chosen_TK: Tensor) -> Tensor:
    """Log-probabilities of the chosen tokens, and of all others together where there are others."""
    wide_TV = logits_TV.to(torch.promote_types(logits_TV.dtype, torch.float32))
    logprobs_TK = wide_TV.gather(-1, chosen_TK)
    whole_T1 = torch.logsumexp(wide_TV, dim=-1, keepdim=True)
    if chosen_TK.shape[-1] == wide_TV.shape[-1]:
        return logprobs_TK - whole_T1
    others_T1 = torch.logsumexp(wide_TV.scatter(-1, chosen_TK, -torch.inf), dim=-1, keepdim=True)
    return torch.cat([logprobs_TK, others_T1], dim=-1) - whole_T1
