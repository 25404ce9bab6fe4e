"""The token bridge, against a small template whose ids are worked out by hand."""

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.domain.bridge import Chain, closing_ids, suffix

S, E, NL, GEN = 1, 2, 3, 4


def render(*turns: list[int], prompt: bool = True) -> list[int]:
    """Each turn: S ids E NL; the generation prompt: S GEN."""
    ids = [token for turn in turns for token in (S, *turn, E, NL)]
    return [*ids, S, GEN] if prompt else ids


def test_suffix_after_a_turn_that_renders_as_it_was_sampled():
    chain = Chain([S, 10, E, NL, S, GEN, 20, E], ended=True)
    full = [S, 10, E, NL, S, GEN, 20, E, NL, S, 30, E, NL, S, GEN]
    assert suffix(chain, full, full[:9], E) == [NL, S, 30, E, NL, S, GEN]


def test_suffix_after_a_turn_that_renders_otherwise():
    # Sampled as 21, 22; rendered as 29.
    chain = Chain([S, 10, E, NL, S, GEN, 21, 22, E], ended=True)
    assert suffix(chain, render([10], [29], [30]), render([10], [29], prompt=False), E) == [NL, S, 30, E, NL, S, GEN]


def test_suffix_after_a_turn_that_was_cut_off_begins_with_the_turns_end():
    chain = Chain([S, 10, E, NL, S, GEN, 21, 22], ended=False)
    expected = [E, NL, S, 30, E, NL, S, GEN]
    assert suffix(chain, render([10], [29], [30]), render([10], [29], prompt=False), E) == expected


def test_no_suffix_when_the_turns_can_not_be_numbered_alike():
    chain = Chain([S, 10, E, NL, S, GEN, 21, E], ended=True)
    past = render([10], [29], prompt=False)
    # The template dropped a turn of the history, or shows the sampled turn twice, or closes it differently later.
    assert suffix(chain, render([29], [30]), render([29], prompt=False), E) is None
    assert suffix(chain, render([10], [29], [29], [30]), render([10], [29], [29], prompt=False), E) is None
    assert suffix(chain, [S, 10, E, NL, S, 29, E, S, 30, E, NL, S, GEN], past, E) is None
    assert suffix(chain, [S, 10, 29], past, E) is None
    assert suffix(chain, render([10], [29], [30]), past, turn_end=99) is None


def test_closing_ids_are_what_three_different_texts_share_at_the_end():
    assert closing_ids([[S, 5, 6, E, NL], [S, 8, E, NL], [S, 9, E, NL]]) == [E, NL]
    assert closing_ids([[S, 5, 8, E], [S, 8, E], [S, 9, E]]) == [E]
    assert closing_ids([[1], [2], [3]]) == []


words = st.lists(st.integers(min_value=10, max_value=40), min_size=1, max_size=4)


@given(st.lists(st.tuples(words, words, words), min_size=1, max_size=4), words, st.booleans())
def test_bridged_prompt_holds_each_new_message_once_and_every_sampled_id(turns, new, ended):
    # Each turn: user, sampled ids, and how the template renders these.
    chain: list[int] = []
    shown: list[list[int]] = []
    for index, (user, sampled, rendered) in enumerate(turns):
        chain += [*([NL] if index else []), S, *user, E, NL, S, GEN, *sampled, E]
        shown += [user, rendered]
    if not ended:
        chain.pop()
    got = suffix(Chain(chain, ended), render(*shown, new), render(*shown, prompt=False), E)
    assert got == [*([] if ended else [E]), NL, S, *new, E, NL, S, GEN]
