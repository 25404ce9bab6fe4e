"""The sealed trajectories of recorded demo runs, as workloads: of one step, and of all steps at once.

`data/demo_batch.zip` holds a step's trajectories as their Arrow blobs, byte by byte as they were sealed.
`data/demo_run.npz` holds the message trees of all that a whole run trained (seed 3 of the README), ids only, as
`python -m loadtests.tree.recorded RUN OUT --instance demo` writes them where the run was made.
"""

import argparse
import asyncio
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from loadtests.tree.workloads import Sample, Workload
from services.cli.pool.places import PoolPlaces
from services.cli.pool.reading import Pool
from services.contract.trajectory import Node, Trajectory, decode, training_branches

VOCABULARY = 768
"""Of the demo's model."""

DATA = Path(__file__).parent / "data"
STEP, RUN = DATA / "demo_batch.zip", DATA / "demo_run.npz"


def recorded_step(_seed: int) -> Workload:
    """All episodes of one step. Per request: every trainable node ends a sample. Per chain: every branch is one."""
    with zipfile.ZipFile(STEP) as archive:
        return _workload("a recorded demo run's step", [decode(archive.read(name)) for name in archive.namelist()])


def recorded_run(_seed: int) -> Workload:
    """The same of all that a run's 40 steps trained, as one batch."""
    with np.load(RUN) as columns:
        return _workload("a recorded demo run, all steps at once", unpacked({name: columns[name] for name in columns}))


def packed(trajectories: Iterable[Trajectory]) -> dict[str, Any]:
    """Columns of the message trees: nodes a tree, and of each node its id, its parent, its ids, and if it's trained."""
    trees = list(trajectories)
    nodes = [node for tree in trees for node in tree.nodes]
    return {
        "nodes_E": np.asarray([len(tree.nodes) for tree in trees], np.int32),
        "node_ids_N": np.asarray([node.node_id for node in nodes], np.int32),
        "parents_N": np.asarray([node.parent_id for node in nodes], np.int32),
        "trainable_N": np.asarray([node.trainable for node in nodes], np.bool_),
        "tokens_N": np.asarray([len(node.token_ids) for node in nodes], np.int32),
        "token_ids_T": np.concatenate([np.asarray(node.token_ids, np.uint16) for node in nodes]),
    }


def unpacked(columns: dict[str, Any]) -> Iterator[Trajectory]:
    """The trees again, without texts, log-probabilities and all else that merging doesn't ask for."""
    ids_N = np.split(columns["token_ids_T"], np.cumsum(columns["tokens_N"])[:-1])
    rows = zip(columns["node_ids_N"], columns["parents_N"], columns["trainable_N"], ids_N, strict=True)
    nodes = [
        Node(int(node_id), int(parent), "sampled" if trainable else "context", 0, "", "", ids_T.tolist())
        for node_id, parent, trainable, ids_T in rows
    ]
    first = 0
    for count in columns["nodes_E"].tolist():
        yield Trajectory("", "", tuple(nodes[first : first + count]))
        first += count


def _workload(name: str, trajectories: Iterable[Trajectory]) -> Workload:
    requests, chains = list[Sample](), list[Sample]()
    for trajectory in trajectories:
        parents = {node.node_id: node.parent_id for node in trajectory.nodes}
        for node in trajectory.nodes:
            if node.trainable:
                path = [node.node_id]
                while parents[path[-1]] in parents:
                    path.append(parents[path[-1]])
                requests.append(_sample(trajectory, path[::-1], {node.node_id}))
        every = {node.node_id for node in trajectory.nodes if node.trainable}
        chains += [_sample(trajectory, branch, every) for branch in training_branches(trajectory)]
    return Workload(name, tuple(requests), tuple(chains), 0.9, 0.9, VOCABULARY)


def _sample(trajectory: Trajectory, path: list[int], trained: set[int]) -> Sample:
    nodes = {node.node_id: node for node in trajectory.nodes}
    ids = [np.asarray(nodes[node_id].token_ids, np.int64) for node_id in path]
    marks = [np.full(len(part), node_id in trained) for part, node_id in zip(ids, path, strict=True)]
    trained_T = np.concatenate(marks)
    trained_T[:1] = False
    return Sample(np.concatenate(ids), trained_T)


async def _trained(pool: Pool, run_id: str) -> list[Trajectory]:
    index = await pool.index(run_id, reports=False)
    rows = [row for row in index.episodes.values() if row.state == "trained"]
    rows.sort(key=lambda row: (row.batch or 0, row.position or 0))
    return [trajectory async for _, trajectory in pool.trajectories(rows)]


def main() -> None:
    """Write a run's trees."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.tree.recorded", description=main.__doc__)
    parser.add_argument("run", help="id of a run of this folder's stack")
    parser.add_argument("out", type=Path, help="a file that ends in .npz")
    parser.add_argument("--instance", default="demo", help="the stack's name")
    asked = parser.parse_args()
    trees = asyncio.run(_trained(Pool(PoolPlaces.of(asked.instance)), asked.run))
    np.savez_compressed(asked.out, **packed(trees))


if __name__ == "__main__":
    main()
