"""Who still names a blob: held against a plain list of who named what, in any order of naming and leaving."""

from hypothesis import given
from hypothesis import strategies as st

from services.contract.references import References

EPISODES, URIS = ("a", "b", "c", "d"), ("u", "v", "w")
named = st.tuples(st.sampled_from(EPISODES), st.sampled_from(URIS))
leave = st.tuples(st.frozensets(st.sampled_from(EPISODES), min_size=1), st.booleans())


@given(
    st.lists(named | leave, max_size=40),
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
            references.part(first, forget=bool(second))
            gone |= first
            if second:
                dead = {uri for uri in URIS if naming(uri) & first and naming(uri) <= gone}
                pairs = {(episode, uri) for episode, uri in pairs if uri not in dead}
        else:
            references.name(str(first), str(second))
            pairs.add((str(first), str(second)))
    own = {uri for uri in URIS if naming(uri) & leaving}
    free = {uri for uri in own if naming(uri) <= gone | leaving | also}
    assert references.without(leaving, also) == (sorted(free), sorted(own - free))
    assert references.naming(EPISODES) == [one for one in EPISODES if any(one == episode for episode, _ in pairs)]
    assert {one for one in EPISODES if references.has_parted(one)} == gone


def test_asked_twice_it_answers_the_same_until_they_have_gone() -> None:
    references = References()
    for episode in "ab":
        references.name(episode, "shared")
    references.name("a", "own")
    references.name("a", "")
    assert references.without("a") == references.without("a") == (["own"], ["shared"])
    references.part("a", forget=True)
    assert references.without("a") == ([], ["shared"])
    assert references.without("b") == (["shared"], [])
    references.part("b", forget=True)
    assert references.naming("ab") == []
    # The same content anew, of somebody who stays.
    references.name("c", "shared")
    references.name("a", "shared")
    assert references.without("ab") == ([], ["shared"])
