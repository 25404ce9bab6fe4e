"""How long an engine takes: T_prefill = a + b*u + c*u*(hit + u/2), decode by token and by load, fetch by token. Pure.

u: tokens to compute, hit: tokens whose KV is there. All seconds; fitted online from ended leases.
"""

from dataclasses import dataclass

from services.router.domain.fit import OnlineFit

# Scales that bring features near 1, so that one step of the fit suits all of them.
_TOKENS, _TOKENS_SQUARED, _LOAD = 1e3, 1e6, 10.0
# Before anything is measured: a small model on two cores.
_PREFILL_PRIOR = (0.015, 0.10, 0.02)
_DECODE_PRIOR = (0.007, 0.005)
_FETCH_PRIOR = (0.02, 0.01)
_NEW_TOKENS_PRIOR = 64.0
_FADE = 0.05


@dataclass(frozen=True, slots=True)
class Ended:
    """What a finished call measured; seconds, 0 where unknown. `running`: calls in the engine when it began."""

    prompt_tokens: int
    cached_tokens: int
    new_tokens: int
    prefill_s: float
    total_s: float
    running: int
    # Tokens of `cached_tokens` that came from the shared pool.
    fetched_tokens: int = 0


class Speed:
    """One worker's coefficients."""

    def __init__(self) -> None:
        self._prefill = OnlineFit(_PREFILL_PRIOR)
        self._decode = OnlineFit(_DECODE_PRIOR)
        self._fetch = OnlineFit(_FETCH_PRIOR)
        self._new_tokens = _NEW_TOKENS_PRIOR

    def prefill_s(self, computed_tokens: int, hit_tokens: int) -> float:
        """Time to the first token of a prompt."""
        return self._prefill.predict(_prefill_features(computed_tokens, hit_tokens))

    def fetch_s(self, tokens: int) -> float:
        """Time to get KV of so many tokens from the pool."""
        return self._fetch.predict((1.0, tokens / _TOKENS)) if tokens else 0.0

    def decode_s(self, max_new_tokens: int, running: int) -> float:
        """Time for the tokens that a call is expected to sample beside `running` others."""
        return min(float(max_new_tokens), self._new_tokens) * self._decode.predict((1.0, running / _LOAD))

    def learn(self, ended: Ended) -> None:
        """Take in a finished call. Without a measured time to first token the fitted one is taken off the total."""
        if ended.total_s <= 0 or ended.prompt_tokens <= 0:
            return
        self._new_tokens += _FADE * (ended.new_tokens - self._new_tokens)
        computed = max(0, ended.prompt_tokens - ended.cached_tokens)
        prefill_s = ended.prefill_s or self.prefill_s(computed, ended.cached_tokens)
        if ended.prefill_s > 0 and ended.fetched_tokens:
            rest_s = ended.prefill_s - self.prefill_s(computed, ended.cached_tokens)
            self._fetch.learn((1.0, ended.fetched_tokens / _TOKENS), max(0.0, rest_s))
        elif ended.prefill_s > 0:
            self._prefill.learn(_prefill_features(computed, ended.cached_tokens), ended.prefill_s)
        if ended.new_tokens > 1:
            each_s = max(0.0, ended.total_s - prefill_s) / (ended.new_tokens - 1)
            self._decode.learn((1.0, ended.running / _LOAD), each_s)

    @property
    def prefill_coefficients(self) -> tuple[float, float, float]:
        """a (s), b (s per token), c (s per token squared)."""
        a, b, c = self._prefill.coefficients
        return a, b / _TOKENS, c / _TOKENS_SQUARED


def _prefill_features(computed_tokens: int, hit_tokens: int) -> tuple[float, float, float]:
    squared = computed_tokens * (hit_tokens + computed_tokens / 2)
    return 1.0, computed_tokens / _TOKENS, squared / _TOKENS_SQUARED
