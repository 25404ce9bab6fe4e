"""The loss that a run's training section names. It refuses one that it doesn't know."""

from forgerl.common.v1 import run_pb2

from services.trainer.domain.losses.cispo import Cispo
from services.trainer.domain.losses.clipping import Interval
from services.trainer.domain.losses.grpo import Grpo
from services.trainer.domain.losses.gspo import Gspo
from services.trainer.domain.losses.interface import Loss
from services.trainer.domain.losses.ppo_clip import PpoClip
from services.trainer.domain.losses.truncated import TruncatedImportance
from services.trainer.domain.refusal import StepRefused


def loss_of(training: run_pb2.TrainingSpec) -> Loss:
    """Of a resolved section. Raises StepRefused on a loss that this trainer doesn't have."""
    interval = Interval(training.clip_low, training.clip_high)
    match training.loss:
        case run_pb2.LOSS_KIND_CISPO:
            return Cispo(training.cispo_cap)
        case run_pb2.LOSS_KIND_GRPO:
            loss: Loss = Grpo(interval)
        case run_pb2.LOSS_KIND_GSPO:
            loss = Gspo(interval)
        case run_pb2.LOSS_KIND_PPO_CLIP:
            loss = PpoClip(interval)
        case unknown:
            raise StepRefused(f"training.loss: given {unknown}; allowed cispo, grpo, gspo, ppo_clip")
    cap = training.truncated_importance_cap
    return TruncatedImportance(loss, cap) if cap > 0 else loss


def divides_by_spread(training: run_pb2.TrainingSpec) -> bool:
    """Whether the loss's source divides advantages by the standard deviation of their group."""
    return training.loss in (run_pb2.LOSS_KIND_GRPO, run_pb2.LOSS_KIND_GSPO)
