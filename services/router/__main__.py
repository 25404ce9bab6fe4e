"""Entry point: `python -m services.router`."""

from services.kernel.lifecycle import run
from services.router.bootstrap import build
from services.router.settings import Settings


def main() -> None:
    """Run until told to stop."""
    run(Settings, build)


if __name__ == "__main__":
    main()
