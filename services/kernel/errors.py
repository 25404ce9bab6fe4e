"""The three kinds of failure and the one table that maps them to gRPC and HTTP; refuses other classifications."""

import re

import grpc


class ForgeError(Exception):
    """A failure with one line that says what and where."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Transient(ForgeError):
    """May succeed when tried again unchanged."""


class Permanent(ForgeError):
    """Will fail again however often it is tried."""


class Conflict(ForgeError):
    """The state that the decision rested on has moved: read again and decide anew."""


class InvalidInput(Permanent):
    """An input that can't be accepted: which field, what was given (credentials in URLs masked), what is allowed."""

    def __init__(self, field: str, given: object, allowed: str) -> None:
        super().__init__(f"{field}: given {masked(repr(given))}; allowed {allowed}")
        self.field = field


class NotFound(Permanent):
    """Nothing is known under that name."""


class Refused(Permanent):
    """A precondition doesn't hold."""


class Unauthenticated(Permanent):
    """No credential, or not a valid one."""


# The first row whose class fits decides, so the special ones stand first.
_TABLE: tuple[tuple[type[ForgeError], grpc.StatusCode, int], ...] = (
    (InvalidInput, grpc.StatusCode.INVALID_ARGUMENT, 400),
    (NotFound, grpc.StatusCode.NOT_FOUND, 404),
    (Refused, grpc.StatusCode.FAILED_PRECONDITION, 409),
    (Unauthenticated, grpc.StatusCode.UNAUTHENTICATED, 401),
    (Conflict, grpc.StatusCode.ABORTED, 409),
    (Transient, grpc.StatusCode.UNAVAILABLE, 503),
    (Permanent, grpc.StatusCode.INTERNAL, 500),
)
_RETRYABLE = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "UNKNOWN", "CANCELLED")


def grpc_status(error: BaseException) -> grpc.StatusCode:
    """The gRPC status under which an error leaves a server."""
    return next((status for kind, status, _ in _TABLE if isinstance(error, kind)), grpc.StatusCode.UNKNOWN)


def http_status(error: BaseException) -> int:
    """The HTTP status under which an error leaves a server."""
    return next((status for kind, _, status in _TABLE if isinstance(error, kind)), 500)


def masked(text: str) -> str:
    """A text without the user and password of URLs in it."""
    return re.sub(r"://[^/\s]+@", "://***@", text)


def from_grpc(status: grpc.StatusCode, message: str) -> ForgeError:
    """The error that a status stands for on the caller's side."""
    if status is grpc.StatusCode.INVALID_ARGUMENT:
        field, _, rest = message.partition(": given ")
        given, _, allowed = rest.rpartition("; allowed ")
        error = InvalidInput(field, given, allowed)
        error.message, error.args = message, (message,)
        return error
    if status.name in _RETRYABLE:
        return Transient(message)
    return next((kind(message) for kind, known, _ in _TABLE[1:] if known is status), Permanent(message))
