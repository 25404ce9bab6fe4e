"""What the scheduler can decide; each is recorded beside the input that led to it, so a fold never decides again."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdmitItem:
    """The item takes `position` in the queue, and its members may run until `deadline_at_s` (seconds since 1970)."""

    group_id: str
    position: int
    deadline_at_s: float


@dataclass(frozen=True, slots=True)
class AdmitEvaluation:
    """The evaluation episode may run until `deadline_at_s` (seconds since 1970)."""

    episode_id: str
    deadline_at_s: float


@dataclass(frozen=True, slots=True)
class Revoke:
    """The episode is over for the scheduler, whatever it still does."""

    episode_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class TakeItem:
    """The item is consumed into `batch`, `distance` items away from the head."""

    group_id: str
    position: int
    batch: int
    distance: int


@dataclass(frozen=True, slots=True)
class DropItem:
    """The item is consumed untrained; without a position it never was in the queue."""

    group_id: str
    position: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class CloseBatch:
    """The batch is full and goes to the trainer."""

    batch: int


@dataclass(frozen=True, slots=True)
class SetWindow:
    """From now on the window holds so many items; only where the run file says that it may change."""

    window_items: int


@dataclass(frozen=True, slots=True)
class PruneEpisodes:
    """Blobs that only these episodes name are wanted no more: they closed `keep_steps` steps ago, or longer."""

    episode_ids: tuple[str, ...]
    keep_steps: int


Decision = AdmitItem | AdmitEvaluation | Revoke | TakeItem | DropItem | CloseBatch | SetWindow | PruneEpisodes
