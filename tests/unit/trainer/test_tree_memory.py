"""Live bytes of tensors: a tree far beyond the budget takes what its longest path takes, not what its slots would."""

from unittest.mock import patch

import pytest

from loadtests.tree import memory
from loadtests.tree.checks import peak_bytes

LONGEST, TOKENS = 512, 3_000


@pytest.mark.parametrize("recompute", [False, True])
def test_a_tree_takes_no_more_than_a_tenth_above_its_longest_path(recompute: bool) -> None:
    model = memory.narrow_model()
    samples = memory.episode(TOKENS, LONGEST)
    with patch.object(memory, "BUDGET_TOKENS", TOKENS):
        alone = peak_bytes(model, lambda: memory.train(model, samples[:1], recompute))
        whole = peak_bytes(model, lambda: memory.train(model, samples, recompute))
    with patch.object(memory, "BUDGET_TOKENS", 128):
        cut = peak_bytes(model, lambda: memory.train(model, samples, recompute))
    # What doesn't grow with tokens: the weights and their gradients.
    fixed = 2 * sum(parameter.nbytes for parameter in model.parameters())
    assert cut - fixed <= 1.1 * (alone - fixed)
    assert whole - fixed > 3 * (cut - fixed)


def test_recomputing_activations_takes_less() -> None:
    model = memory.narrow_model()
    samples = [memory.path(2_000)]
    with patch.object(memory, "BUDGET_TOKENS", 200):
        kept, recomputed = (peak_bytes(model, lambda on=on: memory.train(model, samples, on)) for on in (False, True))
    assert recomputed < 0.5 * kept
