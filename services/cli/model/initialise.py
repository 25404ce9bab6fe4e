"""`forgerl model init`: makes the model directory, from nothing to held-out numbers.

It refuses to write into a directory that is not empty.
"""

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from transformers import Qwen3ForCausalLM

from services.cli.model.architecture import new_network, parameter_count
from services.cli.model.demonstrations import Demonstrator
from services.cli.model.episodes import play
from services.cli.model.tokenizer import ChatTokenizer, save_tokenizer, train_tokenizer
from services.cli.model.warmup import DOMAIN_SHARES, Warmup, WarmupProgress
from services.environments.registry import environments

DEFAULT_STEPS = 1_600
HELDOUT_TASKS = 200
LOG_EVERY_STEPS = 100
REPORT_FILE = "warmup.json"


@dataclass(frozen=True, slots=True)
class LoggedLoss:
    """The mean loss over the steps since the last entry, in nats a token."""

    step: int
    loss: float
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class ModelReport:
    """What came out. `heldout_success`: share of 200 held-out tasks a domain that were solved at temperature 1."""

    out: str
    seed: int
    steps: int
    parameters: int
    vocabulary: int
    wall_s: float
    heldout_success: Mapping[str, float]
    losses: tuple[LoggedLoss, ...]


class LossLog:
    """Collects losses, one entry every hundred steps."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = clock()
        self._since: list[float] = []
        self.entries: list[LoggedLoss] = []

    def add(self, progress: WarmupProgress) -> None:
        """Take one step's loss."""
        self._since.append(progress.loss)
        if progress.step % LOG_EVERY_STEPS == 0 or progress.step == progress.steps:
            mean = sum(self._since) / len(self._since)
            self.entries.append(LoggedLoss(progress.step, round(mean, 4), round(self.elapsed_s(), 1)))
            self._since.clear()

    def elapsed_s(self) -> float:
        """Seconds since the log was opened."""
        return self._clock() - self._started


async def init_model(
    out: Path, seed: int, steps: int | None, on_progress: Callable[[WarmupProgress], None]
) -> ModelReport:
    """Make a warmed-up model at `out` in about 25 minutes. Raises FileExistsError where `out` holds files."""
    return await asyncio.to_thread(make_model, out, seed, steps or DEFAULT_STEPS, on_progress)


def check_new(out: Path) -> None:
    """Raises FileExistsError where `out` holds files, or is one."""
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"{out}: is a file; name a new directory")
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out}: not empty; name a new directory")


def make_model(out: Path, seed: int, steps: int, on_progress: Callable[[WarmupProgress], None]) -> ModelReport:
    """The blocking part of `init_model`."""
    check_new(out)
    out.mkdir(parents=True, exist_ok=True)
    log = LossLog(time.monotonic)
    tokenizer = train_tokenizer()
    network = new_network(tokenizer, seed)
    known = environments()
    demonstrator = Demonstrator({name: known[name] for name in DOMAIN_SHARES}, random.Random(seed))

    def seen(progress: WarmupProgress) -> None:
        log.add(progress)
        on_progress(progress)

    Warmup(network, tokenizer, demonstrator, seed).run(steps, seen)
    success = asyncio.run(heldout_success(network, tokenizer, seed))
    report = ModelReport(
        out=out.name,
        seed=seed,
        steps=steps,
        parameters=parameter_count(network),
        vocabulary=len(tokenizer),
        wall_s=round(log.elapsed_s(), 1),
        heldout_success=success,
        losses=tuple(log.entries),
    )
    network.save_pretrained(str(out))
    save_tokenizer(tokenizer, out)
    (out / REPORT_FILE).write_text(json.dumps(asdict(report), indent=1) + "\n")
    return report


async def heldout_success(
    network: Qwen3ForCausalLM, tokenizer: ChatTokenizer, seed: int, tasks: int = HELDOUT_TASKS
) -> dict[str, float]:
    """The share of the first held-out tasks that are solved, by domain."""
    known = environments()
    generator = torch.Generator().manual_seed(seed)
    shares: dict[str, float] = {}
    for domain in DOMAIN_SHARES:
        asked = [known[domain].task("heldout", index) for index in range(tasks)]
        played = await play(network, tokenizer, known[domain], asked, generator)
        shares[domain] = round(sum(episode.verdict.score >= 1.0 for episode in played) / tasks, 4)
    return shares
