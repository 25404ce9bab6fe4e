"""Who still names a blob: held against a plain list of who named what, in any order of naming and leaving."""

from hypothesis import given
from hypothesis import strategies as st

from services.contract.references import References

RUNS = {"r": ("a", "b"), "s": ("c", "d")}
EPISODES, URIS = ("a", "b", "c", "d"), ("u", "v", "w")
named = st.tuples(st.sampled_from(EPISODES), st.sampled_from(URIS))
leave = st.tuples(st.frozensets(st.sampled_from(EPISODES), min_size=1), st.booleans())
drop = st.tuples(st.none(), st.sampled_from(sorted(RUNS)))


@given(
    st.lists(named | leave | drop, max_size=40),
    st.frozensets(st.sampled_from(EPISODES)),
    st.frozensets(st.sampled_from(EPISODES)),
)
def test_free_is_what_nobody_names_who_stays(
    steps: list[tuple[object, object]], leaving: frozenset[str], also: frozenset[str]
) -> None:
    references, pairs, gone = References(), set[tuple[str, str]](), set[str]()

    def naming(uri: str) -> set[str]:
        return {episode for episode, other in pairs if other == uri}

    for first, second in steps:
        if isinstance(first, frozenset):
            for run_id, all_of_it in RUNS.items():
                own_leaving = first.intersection(all_of_it)
                references.part(run_id, own_leaving, forget=bool(second))
                gone |= own_leaving
                if second:
                    dead = {uri for uri in URIS if naming(uri) & own_leaving and naming(uri) <= gone}
                    pairs = {(episode, uri) for episode, uri in pairs if uri not in dead}
        elif first is None:
            references.drop(str(second))
            dropped = gone.intersection(RUNS[str(second)])
            pairs = {(episode, uri) for episode, uri in pairs if episode not in dropped}
            gone -= dropped
        else:
            references.name(str(first), str(second))
            pairs.add((str(first), str(second)))
    own = {uri for uri in URIS if naming(uri) & leaving}
    free = {uri for uri in own if naming(uri) <= gone | leaving | also}
    assert references.without(leaving, also) == (sorted(free), sorted(own - free))
    assert references.naming(EPISODES) == [one for one in EPISODES if any(one == episode for episode, _ in pairs)]
    assert {one for run_id in RUNS for one in EPISODES if references.has_parted(run_id, one)} == gone


def test_asked_twice_it_answers_the_same_until_they_have_gone() -> None:
    references = References()
    for episode in "ab":
        references.name(episode, "shared")
    references.name("a", "own")
    references.name("a", "")
    assert references.without("a") == references.without("a") == (["own"], ["shared"])
    references.part("r", "a", forget=True)
    assert references.without("a") == ([], ["shared"])
    assert references.without("b") == (["shared"], [])
    references.part("r", "b", forget=True)
    assert references.naming("ab") == []
    # The same content anew, of somebody who stays.
    references.name("c", "shared")
    references.name("a", "shared")
    assert references.without("ab") == ([], ["shared"])


def test_a_dropped_run_is_not_remembered_and_the_others_have_the_same_answers() -> None:
    references = References()
    for run_id in ("r", "s"):
        for number in range(3):
            references.name(f"{run_id}{number}", f"shared{number}")
            references.name(f"{run_id}{number}", f"own-{run_id}{number}")
    references.part("r", ["r0", "r1", "r2"])
    before = references.without(["s0", "s1"])
    assert before == (["own-s0", "own-s1", "shared0", "shared1"], [])
    references.drop("r")
    assert references.without(["s0", "s1"]) == before
    assert references.naming(["r0", "r1", "r2"]) == []
    references.part("s", ["s0", "s1", "s2"])
    references.drop("s")
    assert vars(references) == vars(References())
