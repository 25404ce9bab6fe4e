"""Why a batch is refused for good. It refuses to stand for anything that a retry could cure."""


class StepRefused(Exception):
    """The batch can't be trained, however often it is tried; `detail` says why, and names the episode at fault."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail
