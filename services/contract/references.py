"""Which blobs nobody names any more: the count by which every service frees its own. Pure.

Blobs are named by their content, so several episodes may name one; it goes when all of them are gone. An episode that
is gone keeps nothing, also what it names later; it is remembered until its run is dropped. It refuses to know why an
episode is gone, and to delete.
"""

from collections.abc import Collection


class References:
    """Who names what, episode by episode; blobs by uri."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}
        self._uris: dict[str, set[str]] = {}
        self._gone: dict[str, set[str]] = {}

    def name(self, episode_id: str, uri: str) -> None:
        """The episode names a blob; none when the uri is empty."""
        if uri:
            self._names.setdefault(uri, set()).add(episode_id)
            self._uris.setdefault(episode_id, set()).add(uri)

    def naming(self, episode_ids: Collection[str]) -> list[str]:
        """Those of the episodes that name anything."""
        return [episode_id for episode_id in episode_ids if episode_id in self._uris]

    def without(self, episode_ids: Collection[str], also: Collection[str] = ()) -> tuple[list[str], list[str]]:
        """Uris that these episodes name: nobody would miss the first without them; others keep the second.

        also: leave as well. Asked again before `part`, the answer is the same.
        """
        leaving = {*episode_ids, *also}
        named = sorted({uri for episode_id in episode_ids for uri in self._uris.get(episode_id, ())})
        kept = [uri for uri in named if any(self._keeps(one, leaving) for one in self._names[uri])]
        return sorted(set(named).difference(kept)), kept

    def part(self, run_id: str, episode_ids: Collection[str], *, forget: bool = False) -> None:
        """These episodes are gone. May be repeated. forget: what only they named was freed, all that they ever name."""
        self._gone.setdefault(run_id, set()).update(episode_ids)
        for uri in self.without(episode_ids)[0] if forget else ():
            for episode_id in self._names.pop(uri):
                left = self._uris[episode_id]
                left.discard(uri)
                if not left:
                    del self._uris[episode_id]

    def drop(self, run_id: str) -> None:
        """Forget who is gone of a run, and what they named: the others' answers are the same.

        What such an episode names later it keeps, until it is said to be gone again.
        """
        for episode_id in self._gone.pop(run_id, ()):
            for uri in self._uris.pop(episode_id, ()):
                self._names[uri].discard(episode_id)
                if not self._names[uri]:
                    del self._names[uri]

    def has_parted(self, run_id: str, episode_id: str) -> bool:
        """Whether the run's episode is gone."""
        return episode_id in self._gone.get(run_id, ())

    def _keeps(self, episode_id: str, leaving: Collection[str]) -> bool:
        return episode_id not in leaving and not any(episode_id in gone for gone in self._gone.values())
