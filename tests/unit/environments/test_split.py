"""Train and held-out never overlap: by seed, and by what is asked."""

from dataclasses import dataclass

import pytest

from services.environments.interface import InvalidTask
from services.environments.split import HELDOUT_FIRST_SEED, MAX_TASKS, SEEDS_PER_TASK, draw_in_split, split_of


@dataclass(frozen=True, slots=True)
class Numbered:
    """Content that is the seed modulo 1000, so that both splits draw the same contents."""

    seed: int

    @property
    def content_key(self) -> str:
        return str(self.seed % 1000)


def test_about_a_fifth_of_contents_is_held_out() -> None:
    held_out = sum(split_of(str(number)) == "heldout" for number in range(10_000))
    assert 1_850 < held_out < 2_150


def test_no_content_and_no_seed_on_both_sides() -> None:
    train = [draw_in_split("train", index, Numbered) for index in range(2_000)]
    held_out = [draw_in_split("heldout", index, Numbered) for index in range(2_000)]
    assert not {drawn.content_key for drawn in train} & {drawn.content_key for drawn in held_out}
    assert max(drawn.seed for drawn in train) < HELDOUT_FIRST_SEED <= min(drawn.seed for drawn in held_out)


def test_last_index_of_train_stays_below_the_heldout_seeds() -> None:
    drawn = draw_in_split("train", MAX_TASKS - 1, Numbered)
    assert HELDOUT_FIRST_SEED - SEEDS_PER_TASK <= drawn.seed < HELDOUT_FIRST_SEED


@pytest.mark.parametrize(
    ("split", "index", "named"),
    [("test", 0, "allowed: train, heldout"), ("train", -1, "index: -1"), ("heldout", MAX_TASKS, "allowed: 0..4194303")],
)
def test_bad_split_or_index_is_named(split: str, index: int, named: str) -> None:
    with pytest.raises(InvalidTask, match=named):
        draw_in_split(split, index, Numbered)


def test_a_split_without_contents_is_an_error_and_not_a_loop() -> None:
    held_out_key = next(str(number) for number in range(100) if split_of(str(number)) == "heldout")

    class Same:
        content_key = held_out_key

    with pytest.raises(InvalidTask, match="none of the 256 seeds"):
        draw_in_split("train", 0, lambda seed: Same())
