"""From domains and indices to submissions, with ids that follow from them: submitting again changes nothing."""

from collections.abc import Iterator, Mapping

from forgerl.common.v1 import run_pb2, task_pb2
from forgerl.gateway.v1 import episode_service_pb2 as episodes_pb

from services.environments.interface import Environment
from services.environments.registry import environments

_SEEDS, _TASKS_PER_SEED = 64, 65_536
_SPLITS = {"train": task_pb2.SPLIT_TRAIN, "heldout": task_pb2.SPLIT_HELDOUT}


class TaskSource:
    """Tasks of a run's domains. Raises InvalidInput of the environment for an index that it doesn't have."""

    def __init__(self, run_id: str, spec: run_pb2.RunSpec, known: Mapping[str, Environment] | None = None) -> None:
        known = environments() if known is None else known
        self._run_id = run_id
        # Another seed means other training tasks; the held-out ones stay, so that runs can be compared.
        self._first_index = spec.seed % _SEEDS * _TASKS_PER_SEED
        self._group_size = spec.scheduling.group_size
        self._environments = {d.name: known[d.environment or d.name] for d in spec.domains}

    def domains(self) -> list[str]:
        return list(self._environments)

    def group(self, domain: str, index: int) -> Iterator[episodes_pb.Submission]:
        """The members of one training item."""
        task = self._task(domain, "train", self._first_index + index)
        for member in range(self._group_size):
            yield episodes_pb.Submission(
                episode_id=f"{self._run_id}.{domain}.{index}.{member}",
                run_id=self._run_id,
                kind=task_pb2.EPISODE_KIND_TRAIN,
                group_id=f"{self._run_id}/{domain}/{index}",
                domain=domain,
                task=task,
            )

    def evaluation(self, domain: str, index: int, step: int) -> episodes_pb.Submission:
        """One held-out task for one policy."""
        return episodes_pb.Submission(
            episode_id=f"{self._run_id}.eval{step}.{domain}.{index}",
            run_id=self._run_id,
            kind=task_pb2.EPISODE_KIND_EVALUATION,
            domain=domain,
            task=self._task(domain, "heldout", index),
            pinned_step=step,
        )

    def _task(self, domain: str, split: str, index: int) -> task_pb2.Task:
        task = self._environments[domain].task(split, index)
        return task_pb2.Task(
            environment=task.environment, task_id=task.task_id, split=_SPLITS[split], payload=task.payload
        )
