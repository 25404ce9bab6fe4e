"""Entry point: `python -m services.inference`, the sidecar."""

from services.inference.bootstrap import build
from services.inference.settings import Settings
from services.kernel.lifecycle import run


def main() -> None:
    """Run until told to stop."""
    run(Settings, build)


if __name__ == "__main__":
    main()
