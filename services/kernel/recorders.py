"""The `eventsourcing` recorders as the event store needs them: text ids, several tracking records in one transaction.

Refuses to prune: rowids and tracking positions only grow.
"""

import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, LiteralString, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

import psycopg
from eventsourcing.persistence import StoredEvent, Tracking
from eventsourcing.postgres import PostgresDatastore, PostgresProcessRecorder
from eventsourcing.sqlite import SQLiteConnection, SQLiteConnectionPool, SQLiteDatastore, SQLiteProcessRecorder
from psycopg.sql import SQL, Identifier

from services.kernel.errors import InvalidInput

_LOCK_TIMEOUT_S = 30
_FIRST = "SELECT originator_id FROM {0} CROSS JOIN {1} WHERE originator_version = 1 AND originator_id >= name"
# Many names in one statement, each by a look into the index.
_VERSIONS = "SELECT name, (SELECT MAX(originator_version) FROM {1} WHERE originator_id = name) AS last FROM {0}"
_SEEN = "SELECT name, (SELECT MAX(notification_id) FROM {2} WHERE application_name = name) AS last FROM {0}"
_STREAMS = "SELECT e.* FROM {0} CROSS JOIN {1} AS e WHERE e.originator_id = name ORDER BY name, originator_version"
_POSTGRES_CONNECTIONS = 4


class _Many:
    """Reads about many names at once."""

    _select: Any

    def select_streams(self, prefix: str) -> list[str]:
        return sorted(n for r in self._select(_FIRST, [prefix]) if (n := r["originator_id"]).startswith(prefix))

    def versions(self, names: Sequence[str]) -> dict[str, int]:
        return {row["name"]: row["last"] or 0 for row in self._select(_VERSIONS, names)}

    def seen(self, names: Sequence[str]) -> dict[str, int]:
        return {row["name"]: row["last"] or 0 for row in self._select(_SEEN, names)}

    def select_many(self, names: Sequence[str]) -> list[StoredEvent]:
        rows = self._select(_STREAMS, names)
        return [StoredEvent(r["originator_id"], r["originator_version"], r["topic"], bytes(r["state"])) for r in rows]


class SqliteRecorder(_Many, SQLiteProcessRecorder):
    """One file, in WAL mode."""

    def _select(self, statement: LiteralString, names: Sequence[str]) -> Any:
        with self.datastore.transaction(commit=False) as cursor:
            named = statement.format("(SELECT value AS name FROM json_each(?))", "stored_events", "tracking")
            cursor.execute(named, (json.dumps(names),))
            return cursor.fetchall()

    def _insert_events(self, c: Any, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        returning = super()._insert_events(c, stored_events)
        for tracking in _in_order(kwargs):
            self._insert_tracking(c, tracking)
        return returning

    def lease(self, name: str) -> "Lease":
        return FileLease(Path(f"{self.datastore.pool.db_name}.{name}.lock"))


class PostgresRecorder(_Many, PostgresProcessRecorder):
    """One schema of a server; writers queue for the table, so that notification ids are committed in order."""

    def _select(self, statement: LiteralString, names: Sequence[str]) -> Any:
        tables = [Identifier(self.datastore.schema, n) for n in (self.events_table_name, self.tracking_table_name)]
        named = SQL(statement).format(SQL("unnest(%s::text[]) AS name"), *tables)
        with self.datastore.transaction(commit=False) as cursor:
            return cursor.execute(named, (list(names),)).fetchall()

    def _insert_events(self, curs: Any, stored_events: Sequence[StoredEvent], **kwargs: Any) -> None:
        for tracking in _in_order(kwargs):
            self._insert_tracking(curs, tracking)

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
        raise InvalidInput("store_url", url, "postgresql://USER:PASSWORD@HOST/NAME")
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
