"""Log-probabilities of tokens under the recorded sampling transform: temperature, then nucleus, in float32.

It refuses to know of rows or losses.
"""

import torch
from torch import Tensor

from services.trainer.tree.head import outside_nucleus


def transformed_logprobs(logits_NV: Tensor, token_ids_N: Tensor, temperatures_N: Tensor, top_ps_N: Tensor) -> Tensor:
    """log p of each token after dividing by its temperature and cutting to its nucleus; `_N`, with gradient."""
    scaled_NV = logits_NV.float() / temperatures_N.to(logits_NV.device, torch.float32).unsqueeze(-1)
    if bool((top_ps_N < 1).any()):
        scaled_NV = scaled_NV.masked_fill(outside_nucleus(scaled_NV.detach(), token_ids_N, top_ps_N), float("-inf"))
    return torch.log_softmax(scaled_NV, dim=-1).gather(-1, token_ids_N.unsqueeze(-1)).squeeze(-1)
