"""Least squares, updated by one sample at a time (recursive least squares with forgetting). Pure.

Source of the update: Haykin, Adaptive Filter Theory, 4th ed., ch. 9 (the RLS algorithm).
"""

from collections.abc import Sequence


class OnlineFit:
    """y = sum of coefficient * feature, starting from a prior; features should be scaled to about 1.

    `forget` < 1 lets old samples fade; coefficients are shown clamped at 0: no part of a duration is negative.
    """

    def __init__(self, prior: Sequence[float], *, trust: float = 1.0, forget: float = 0.995) -> None:
        size = len(prior)
        self._weights = list(prior)
        self._forget = forget
        self._most = trust * 100.0
        self._covariance = [[trust if row == column else 0.0 for column in range(size)] for row in range(size)]
        self.samples = 0

    def learn(self, features: Sequence[float], value: float) -> None:
        """Take in one measurement."""
        size = range(len(features))
        spread = [sum(self._covariance[row][column] * features[column] for column in size) for row in size]
        scale = self._forget + sum(features[row] * spread[row] for row in size)
        gain = [part / scale for part in spread]
        error = value - sum(weight * feature for weight, feature in zip(self._weights, features, strict=True))
        self._weights = [weight + part * error for weight, part in zip(self._weights, gain, strict=True)]
        for row in size:
            for column in size:
                faded = (self._covariance[row][column] - gain[row] * spread[column]) / self._forget
                # Directions that no sample excites would grow without bound.
                self._covariance[row][column] = max(-self._most, min(self._most, faded))
        self.samples += 1

    @property
    def coefficients(self) -> tuple[float, ...]:
        """As fitted so far, none below 0."""
        return tuple(max(0.0, weight) for weight in self._weights)

    def predict(self, features: Sequence[float]) -> float:
        """The fitted value, from the clamped coefficients."""
        return sum(weight * feature for weight, feature in zip(self.coefficients, features, strict=True))
