"""`init_model` writes an ordinary Hugging Face directory; the one that ships is such a directory."""

import asyncio
import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from services.cli.errors import UsageError
from services.cli.model.episodes import play
from services.cli.model.initialise import REPORT_FILE, LossLog, init_model
from services.cli.model.tokenizer import ChatTokenizer, chat_template, train_tokenizer
from services.cli.model.warmup import WarmupProgress
from services.cli.model_command import init_model as init_command
from services.environments.registry import environments

SHIPPED = Path(__file__).parents[3] / "examples" / "models" / "tiny-qwen3"
MAX_SHIPPED_BYTES = 6 * 1024 * 1024


async def test_a_directory_that_ordinary_code_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def looked_at(*_: object) -> dict[str, float]:
        return {"tool": 0.25}

    monkeypatch.setattr("services.cli.model.initialise.heldout_success", looked_at)
    monkeypatch.setattr("services.cli.model.warmup.BATCH_CONVERSATIONS", 3)
    seen: list[WarmupProgress] = []
    report = await init_model(tmp_path / "model", seed=5, steps=2, on_progress=seen.append)
    assert [(progress.step, progress.steps) for progress in seen] == [(1, 2), (2, 2)]
    assert (report.seed, report.steps, report.heldout_success) == (5, 2, {"tool": 0.25})
    assert json.loads((tmp_path / "model" / REPORT_FILE).read_text())["parameters"] == report.parameters
    network = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert sum(parameter.numel() for parameter in network.parameters()) == report.parameters
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer.chat_template == chat_template()


def test_a_directory_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="not empty; name a new directory"):
        asyncio.run(init_model(tmp_path, seed=1, steps=1, on_progress=lambda progress: None))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("what", ["folder", "file"])
def test_the_command_refuses_what_is_there_before_it_draws_its_bar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    place = tmp_path
    if what == "folder":
        (place / "mine.txt").write_text("mine")
    else:
        place = tmp_path / "mine"
        place.write_text("mine")
    with pytest.raises(UsageError, match="name a new directory"):
        init_command(place, 0, 1)
    assert capsys.readouterr() == ("", "")


def test_losses_are_logged_as_means_over_a_hundred_steps() -> None:
    times = iter((10.0, 12.5, 20.0))
    log = LossLog(lambda: next(times))
    for step in range(1, 151):
        log.add(WarmupProgress(step, 150, 4.0 if step <= 50 else 2.0))
    assert [(entry.step, entry.loss, entry.elapsed_s) for entry in log.entries] == [(100, 3.0, 2.5), (150, 2.0, 10.0)]


def test_what_ships_is_whole_small_and_made_by_this_code() -> None:
    files = {path.name: path.stat().st_size for path in SHIPPED.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "MODEL_CARD.md"} <= set(
        files
    )
    assert sum(files.values()) < MAX_SHIPPED_BYTES
    config = json.loads((SHIPPED / "config.json").read_text())
    assert config["tie_word_embeddings"] is False and config["dtype"] == "float32"
    shipped, made = AutoTokenizer.from_pretrained(SHIPPED), train_tokenizer().pretrained
    assert shipped.chat_template == made.chat_template
    assert shipped.get_vocab() == made.get_vocab()
    generation = json.loads((SHIPPED / "generation_config.json").read_text())
    assert generation["eos_token_id"] == made.eos_token_id == config["eos_token_id"]


def test_what_ships_starts_between_a_tenth_and_a_half() -> None:
    report = json.loads((SHIPPED / REPORT_FILE).read_text())
    assert set(report["heldout_success"]) == {"reasoning", "tool", "qa"}
    assert all(0.1 <= share <= 0.5 for share in report["heldout_success"].values())


@pytest.mark.parametrize("domain", ["reasoning", "tool", "qa"])
async def test_what_ships_solves_about_what_its_report_says(domain: str) -> None:
    tokenizer = ChatTokenizer(AutoTokenizer.from_pretrained(SHIPPED))
    network = AutoModelForCausalLM.from_pretrained(SHIPPED).eval()
    said = json.loads((SHIPPED / REPORT_FILE).read_text())["heldout_success"][domain]
    environment = environments()[domain]
    tasks = [environment.task("heldout", index) for index in range(40)]
    played = await play(network, tokenizer, environment, tasks, torch.Generator().manual_seed(3))
    solved = sum(episode.verdict.score for episode in played) / len(played)
    assert solved == pytest.approx(said, abs=0.22)  # three standard errors of 40 tasks
