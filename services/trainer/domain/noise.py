"""The variance term of J: how much of a batch's gradient is noise, read off its two halves.

It refuses to judge one half alone: a batch that is all in one half has no estimate and counts as 0.
"""


def noise_ratio(apart: float, whole: float, share: float) -> float:
    """s (1 - s) |g1/s - g2/(1 - s)|^2 / |g|^2, with g = g1 + g2 and s the first half's share of the loss weights.

    `apart`: |g1 - s g|^2; `whole`: |g|^2. The halves' mean gradients differ by noise alone: where every token's
    gradient is the same this is 0, where there is nothing but independent noise 1 is expected, whatever s is. With
    equal halves it is |g1 - g2|^2 / |g1 + g2|^2 (McCandlish et al. 2018, arXiv 1812.06162, appendix A.1, compares
    two batch sizes likewise).
    """
    spread = share * (1.0 - share)
    return apart / (spread * whole) if spread > 0 and whole > 0 else 0.0
