"""The sealed trajectories of a recorded demo run, as a workload.

`data/demo_batch.zip` holds one training step's trajectories as their Arrow blobs, byte by byte as they were sealed.
"""

import zipfile
from pathlib import Path

import numpy as np

from loadtests.tree.workloads import Sample, Workload
from services.contract.trajectory import Trajectory, decode, training_branches

VOCABULARY = 768
"""Of the demo's model."""

ARCHIVE = Path(__file__).parent / "data" / "demo_batch.zip"


def recorded_demo(_seed: int) -> Workload:
    """All episodes of the step. Per request: every trainable node ends a sample. Per chain: every branch is one."""
    requests, chains = list[Sample](), list[Sample]()
    for trajectory in _trajectories():
        parents = {node.node_id: node.parent_id for node in trajectory.nodes}
        for node in trajectory.nodes:
            if node.trainable:
                path = [node.node_id]
                while parents[path[-1]] in parents:
                    path.append(parents[path[-1]])
                requests.append(_sample(trajectory, path[::-1], {node.node_id}))
        every = {node.node_id for node in trajectory.nodes if node.trainable}
        chains += [_sample(trajectory, branch, every) for branch in training_branches(trajectory)]
    return Workload("a recorded demo run's step", tuple(requests), tuple(chains), 0.9, 0.9, VOCABULARY)


def _trajectories() -> list[Trajectory]:
    with zipfile.ZipFile(ARCHIVE) as archive:
        return [decode(archive.read(name)) for name in sorted(archive.namelist())]


def _sample(trajectory: Trajectory, path: list[int], trained: set[int]) -> Sample:
    nodes = {node.node_id: node for node in trajectory.nodes}
    ids = [np.asarray(nodes[node_id].token_ids, np.int64) for node_id in path]
    marks = [np.full(len(part), node_id in trained) for part, node_id in zip(ids, path, strict=True)]
    trained_T = np.concatenate(marks)
    trained_T[:1] = False
    return Sample(np.concatenate(ids), trained_T)
