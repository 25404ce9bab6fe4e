"""The `eventsourcing` recorders as the event store needs them: text ids, several tracking records in one transaction.

Refuses to prune: rowids and tracking positions only grow.
"""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

import psycopg
from eventsourcing.persistence import StoredEvent, Tracking
from eventsourcing.postgres import PostgresDatastore, PostgresProcessRecorder
from eventsourcing.sqlite import SQLiteConnection, SQLiteConnectionPool, SQLiteDatastore, SQLiteProcessRecorder
from psycopg.sql import SQL, Identifier

from services.kernel.errors import InvalidInput

_LOCK_TIMEOUT_S = 30
_FIRST_EVENTS = "SELECT originator_id AS name FROM {} WHERE originator_version = 1"
_POSTGRES_CONNECTIONS = 4


class SqliteRecorder(SQLiteProcessRecorder):
    """One file, in WAL mode."""

    def _insert_events(self, c: Any, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        returning = super()._insert_events(c, stored_events)
        for tracking in _in_order(kwargs):
            self._insert_tracking(c, tracking)
        return returning

    def select_streams(self, prefix: str) -> list[str]:
        statement = f"{_FIRST_EVENTS.format('stored_events')} AND originator_id >= ? AND originator_id < ?"
        with self.datastore.transaction(commit=False) as cursor:
            cursor.execute(statement, (prefix, f"{prefix}\U0010ffff"))
            return sorted(row["name"] for row in cursor.fetchall())

    def lease(self, name: str) -> "Lease":
        return FileLease(Path(f"{self.datastore.pool.db_name}.{name}.lock"))


class PostgresRecorder(PostgresProcessRecorder):
    """One schema of a server; writers queue for the table, so that notification ids are committed in order."""

    def _insert_events(self, curs: Any, stored_events: Sequence[StoredEvent], **kwargs: Any) -> None:
        for tracking in _in_order(kwargs):
            self._insert_tracking(curs, tracking)

    def select_streams(self, prefix: str) -> list[str]:
        table = Identifier(self.datastore.schema, "stored_events")
        with self.datastore.transaction(commit=False) as cursor:
            cursor.execute(SQL(_FIRST_EVENTS + " AND starts_with(originator_id, %s)").format(table), (prefix,))
            return sorted(row["name"] for row in cursor.fetchall())

    def lease(self, name: str) -> "Lease":
        return AdvisoryLease(self.datastore, name)


def _in_order(kwargs: dict[str, Any]) -> list[Tracking]:
    # Sorted, so that two transactions never wait for each other's rows.
    return sorted(kwargs.get("trackings", ()), key=lambda tracking: tracking.application_name)


class _Pool(SQLiteConnectionPool):
    synchronous = "NORMAL"

    def _create_connection(self) -> SQLiteConnection:
        connection = super()._create_connection()
        connection.cursor().execute(f"PRAGMA synchronous={self.synchronous}")
        return connection


def open_sqlite(path: Path, *, durable: bool) -> SqliteRecorder:
    """Open or create a store file; `durable` makes every commit survive a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    datastore = SQLiteDatastore(str(path), originator_id_type="text")
    datastore.close()
    datastore.pool = _Pool(db_name=str(path), lock_timeout=_LOCK_TIMEOUT_S, pool_size=1)
    datastore.pool.synchronous = "FULL" if durable else "NORMAL"
    recorder = SqliteRecorder(datastore)
    recorder.create_table()
    return recorder


def open_postgres(url: str) -> PostgresRecorder:
    """Connect to `postgresql://user:password@host:port/database[?schema=NAME]`, making the schema."""
    parts = urlsplit(url)
    schema, name = parse_qs(parts.query).get("schema", ["public"])[0], parts.path.strip("/")
    if not parts.hostname or not name:
        raise InvalidInput("store_url", parts._replace(netloc="***").geturl(), "postgresql://USER:PASSWORD@HOST/NAME")
    user, password, port = unquote(parts.username or ""), unquote(parts.password or ""), parts.port or 5432
    with psycopg.connect(dbname=name, host=parts.hostname, port=port, user=user, password=password) as connection:
        if (encoding := connection.info.parameter_status("server_encoding")) != "UTF8":
            raise InvalidInput("store_url", f"{name} in {encoding}", "UTF8, as by createdb -T template0 -E UTF8")
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('forgerl.schema'))")
        connection.execute(SQL("CREATE SCHEMA IF NOT EXISTS {}").format(Identifier(schema)))
    datastore = PostgresDatastore(
        name, parts.hostname, port, user, password,
        pool_size=_POSTGRES_CONNECTIONS, schema=schema, originator_id_type="text", pre_ping=True,
    )  # fmt: skip
    recorder = PostgresRecorder(datastore)
    recorder.create_table()
    return recorder


class Lease(Protocol):
    """The right to do what only one process of a service may do."""

    def held(self) -> bool:
        """Whether it is ours, taking it if it is free."""
        ...

    def release(self) -> None:
        """Let another have it."""
        ...


class FileLease:
    """A lock on a file: ends with the process, however it dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def held(self) -> bool:
        if self._descriptor < 0:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            self._descriptor = descriptor
        return True

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class AdvisoryLease:
    """A Postgres advisory lock: ends with its connection."""

    def __init__(self, datastore: PostgresDatastore, name: str) -> None:
        given: Any = datastore.pool.kwargs
        self._where = {word: value for word, value in given.items() if word != "row_factory"}
        self._name = f"{datastore.schema}.{name}"
        self._connection: psycopg.Connection[Any] | None = None

    def held(self) -> bool:
        try:
            if self._connection is not None:
                self._connection.execute("SELECT 1")
                return True
            connection = psycopg.connect(autocommit=True, **self._where)
            row = connection.execute("SELECT pg_try_advisory_lock(hashtext(%s))", (self._name,)).fetchone()
            if row and row[0]:
                self._connection = connection
                return True
            connection.close()
        except psycopg.OperationalError:
            self._connection = None
        return False

    def release(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
