"""Takes recorded episodes from a file into a run: checked whole first, then blobs, then submissions.

Ids follow from what a line says, so a file may be taken in again: nothing is there twice. It refuses a file with any
wrong line before the first episode is submitted.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from forgerl.common.v1 import run_pb2, task_pb2
from forgerl.gateway.v1 import episode_service_pb2 as episodes_pb

from services.cli.errors import UsageError
from services.cli.pool.lines import RecordedLine, parse_line
from services.cli.pool.places import PoolPlaces
from services.contract.trajectory import MEDIA_TYPE, encode
from services.kernel.blobs import Blobs


def read_file(file: Path, spec: run_pb2.RunSpec, *, whole_only: bool = False) -> list[tuple[str, RecordedLine]]:
    """(digest, episode) of each line; `whole_only` leaves groups out that lack members. Raises UsageError."""
    try:
        texts = [(number, text) for number, text in enumerate(file.read_text().splitlines(), 1) if text.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    found: list[tuple[str, RecordedLine]] = []
    domains = [domain.name for domain in spec.domains]
    for number, text in texts:
        where = f"{file}:{number}"
        line = parse_line(text, where)
        if line.domain not in domains:
            raise UsageError(f"{where}: domain: given {line.domain!r}; allowed {', '.join(domains)}")
        found.append((hashlib.sha256(text.encode()).hexdigest()[:16], line))
    return _whole_groups(file, found, spec.scheduling.group_size, whole_only)


def _whole_groups(
    file: Path, found: Sequence[tuple[str, RecordedLine]], group_size: int, whole_only: bool
) -> list[tuple[str, RecordedLine]]:
    counts = Counter((line.domain, line.group) for _, line in found)
    for (domain, group), count in counts.items():
        if count != group_size and not whole_only:
            allowed = f"allowed {group_size} (scheduling.group_size); --whole-groups leaves others out"
            raise UsageError(f"{file}: group {group!r} of {domain}: given {count} episodes; {allowed}")
    kept = [(digest, line) for digest, line in found if counts[line.domain, line.group] == group_size]
    if not kept:
        raise UsageError(f"{file}: given no episode in a whole group; allowed one or more of {group_size}")
    return kept


async def submissions(
    places: PoolPlaces, run_id: str, lines: Sequence[tuple[str, RecordedLine]]
) -> list[episodes_pb.Submission]:
    """Put every trajectory into the blob store, and say what is to be submitted."""
    blobs = Blobs.open(places.blob_url)
    seen: Counter[str] = Counter()
    wanted: list[episodes_pb.Submission] = []
    for digest, line in lines:
        # Equal lines are several samples.
        name = f"{digest}.{seen[digest]}" if seen[digest] else digest
        seen[digest] += 1
        episode_id = f"{run_id}.import.{name}"
        # With its ids inside no other run's blob is the same, so that removing a run frees nothing of another's.
        named = replace(line.trajectory, episode_id=episode_id, run_id=run_id)
        data = await asyncio.to_thread(encode, named)
        recorded = task_pb2.RecordedEpisode(
            trajectory=await blobs.put(data, MEDIA_TYPE),
            outcome=line.outcome,
            answer=line.answer,
            agent_wall_s=line.agent_wall_s,
        )
        wanted.append(
            episodes_pb.Submission(
                episode_id=episode_id,
                run_id=run_id,
                kind=task_pb2.EPISODE_KIND_TRAIN,
                group_id=f"{run_id}/import/{line.domain}/{line.group}",
                domain=line.domain,
                task=line.task,
                recorded=recorded,
            )
        )
    return wanted
