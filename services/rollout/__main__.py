"""Entry point: `python -m services.rollout`."""

from services.kernel.lifecycle import run
from services.rollout.bootstrap import build
from services.rollout.settings import RolloutSettings


def main() -> None:
    """Run until told to stop."""
    run(RolloutSettings, build, workflows=True)


if __name__ == "__main__":
    main()
