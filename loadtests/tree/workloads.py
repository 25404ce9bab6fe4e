"""Shapes of agent training data as token ids: what is shared, and between whom.

A workload knows the same data in two units. Per request: every model call is a sample that trains its own answer. Per
chain: calls that only append to one another are joined beforehand, as a careful trainer does without any tree.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

VOCABULARY = 256


@dataclass(frozen=True, slots=True)
class Sample:
    """Token ids [T], and which of them are trained [T]."""

    ids_T: Ids
    trained_T: Mask


@dataclass(frozen=True, slots=True)
class Workload:
    """`wanted_requests` and `wanted_chains`: the shares of the theoretical factor that are aimed at.

    `least_requests`: a speed-up that must be passed. `against_better`: per chain the share is of the better of merged
    and unmerged, since there is next to nothing to gain. `most_memory`: of the longest sample's, at most.
    """

    name: str
    requests: tuple[Sample, ...]
    chains: tuple[Sample, ...]
    wanted_requests: float
    wanted_chains: float
    vocabulary: int = VOCABULARY
    least_requests: float = 0.0
    against_better: bool = False
    most_memory: float = float("inf")


class _Talk:
    """A conversation that grows by parts, some of them sampled."""

    def __init__(self, parts: Sequence[tuple[Ids, bool]] = ()) -> None:
        self._parts = list(parts)

    def fork(self) -> "_Talk":
        return _Talk(self._parts)

    def add(self, ids: Ids, trained: bool) -> "_Talk":
        self._parts.append((ids, trained))
        return self

    def chain(self) -> Sample:
        """Everything sampled is trained."""
        marks = [np.full(len(ids), trained) for ids, trained in self._parts]
        return Sample(np.concatenate([ids for ids, _ in self._parts]), np.concatenate(marks))

    def request(self) -> Sample:
        """Only the last part is trained."""
        sample = self.chain()
        last_T = np.zeros(len(sample.ids_T), bool)
        last_T[len(sample.ids_T) - len(self._parts[-1][0]) :] = True
        return Sample(sample.ids_T, last_T)


class _Ids:
    """Random ids from one seed."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, count: int) -> Ids:
        return self._rng.integers(0, VOCABULARY, count)


def star(seed: int) -> Workload:
    """One prompt, 16 answers."""
    ids = _Ids(seed)
    prompt = _Talk().add(ids(4096), False)
    samples = tuple(prompt.fork().add(ids(64), True).chain() for _ in range(16))
    return Workload("star: 16 branches, prefix 4096, suffix 64", samples, samples, 0.96, 0.96, most_memory=1.25)


def append_only(seed: int) -> Workload:
    """16 episodes of one task, 32 turns each; a turn is 16 sampled tokens and 16 of the environment's."""
    ids = _Ids(seed)
    head = _Talk().add(ids(2048), False)
    requests, chains = list[Sample](), list[Sample]()
    for _ in range(16):
        talk = head.fork()
        for _turn in range(32):
            talk.add(ids(16), False).add(ids(16), True)
            requests.append(talk.request())
        chains.append(talk.chain())
    name = "append-only: 16 episodes x 32 turns"
    return Workload(name, tuple(requests), tuple(chains), 0.96, 0.93, least_requests=45.0)


def context_rewrites(seed: int) -> Workload:
    """8 episodes x 8 turns of one task; after the fourth turn the history is rewritten behind the head."""
    ids = _Ids(seed)
    head = _Talk().add(ids(1024), False)
    requests, chains = list[Sample](), list[Sample]()
    for _ in range(8):
        for _part in range(2):
            talk = head.fork().add(ids(64), False)
            for _turn in range(4):
                talk.add(ids(64), False).add(ids(64), True)
                requests.append(talk.request())
            chains.append(talk.chain())
    return Workload("context rewrites: 8 episodes x 8 turns", tuple(requests), tuple(chains), 0.95, 0.95)


def thinking_stripped(seed: int) -> Workload:
    """8 x 8: every turn's thinking is gone from the next prompt, so every request is a branch, and no chain longer."""
    ids = _Ids(seed)
    head = _Talk().add(ids(1024), False)
    requests = list[Sample]()
    for _ in range(8):
        history = head.fork()
        for _turn in range(8):
            asked = ids(32)
            thinking, answer = ids(69), ids(32)
            requests.append(history.fork().add(asked, False).add(np.concatenate([thinking, answer]), True).request())
            history.add(asked, False).add(answer, False)
    return Workload("thinking stripped each turn: 8 x 8", tuple(requests), tuple(requests), 0.93, 0.93)


def little_sharing(seed: int) -> Workload:
    """8 episodes x 40 turns of one task behind a short head."""
    ids = _Ids(seed)
    head = _Talk().add(ids(296), False)
    requests, chains = list[Sample](), list[Sample]()
    for _ in range(8):
        talk = head.fork()
        for _turn in range(40):
            talk.add(ids(16), False).add(ids(16), True)
            requests.append(talk.request())
        chains.append(talk.chain())
    return Workload("little sharing: 8 x 40 turns", tuple(requests), tuple(chains), 0.96, 0.98, against_better=True)


def no_sharing(seed: int) -> Workload:
    """32 samples that differ from the first token on."""
    ids = _Ids(seed)
    samples = tuple(_Talk().add(np.array([first]), False).add(ids(511), True).chain() for first in range(32))
    return Workload("no sharing at all", samples, samples, 0.98, 0.98, against_better=True)
