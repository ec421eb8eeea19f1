"""The tables of a SQLite file, step by step, and what is said to the file as a whole.

It keeps to what SQLite 3.26 understands, which old enterprise systems have. What begins with `VERSION_`
is a step of the schema and never changes once it has been published.
"""

from __future__ import annotations

APPLICATION_ID = 0x4F757472
"""The letters "Outr" in the file's head tell a store from any other SQLite file."""

VERSION_1 = (
    "CREATE TABLE schema (version INTEGER PRIMARY KEY, migrated_s INTEGER NOT NULL)",
    """CREATE TABLE reservations (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL,
        state TEXT NOT NULL,
        version INTEGER NOT NULL,
        uid INTEGER NOT NULL,
        user TEXT NOT NULL,
        account TEXT NOT NULL,
        start_s INTEGER NOT NULL,
        accepted_s INTEGER NOT NULL,
        changed_s INTEGER NOT NULL,
        ended_s INTEGER,
        promise TEXT NOT NULL,
        receipt TEXT,
        why TEXT NOT NULL)""",
    # A name may be used again when its reservation is over, and not before.
    "CREATE UNIQUE INDEX live_reservations ON reservations (name) WHERE ended_s IS NULL",
    "CREATE INDEX past_reservations ON reservations (ended_s) WHERE ended_s IS NOT NULL",
    "CREATE INDEX reservations_by_name ON reservations (name, number)",
    """CREATE TABLE transfers (
        number INTEGER PRIMARY KEY,
        state TEXT NOT NULL,
        planned_s INTEGER NOT NULL,
        begun_s INTEGER,
        ended_s INTEGER,
        source TEXT NOT NULL,
        size_bytes INTEGER NOT NULL,
        kept TEXT NOT NULL)""",
    "CREATE INDEX past_transfers ON transfers (ended_s) WHERE ended_s IS NOT NULL",
    """CREATE TABLE needs (
        reservation INTEGER NOT NULL REFERENCES reservations ON DELETE CASCADE,
        transfer INTEGER NOT NULL REFERENCES transfers DEFERRABLE INITIALLY DEFERRED,
        PRIMARY KEY (reservation, transfer)) WITHOUT ROWID""",
    "CREATE INDEX needs_by_transfer ON needs (transfer)",
    """CREATE TABLE progress (
        transfer INTEGER NOT NULL REFERENCES transfers ON DELETE CASCADE,
        node TEXT NOT NULL,
        moved_bytes INTEGER NOT NULL,
        reported_s INTEGER NOT NULL,
        is_done INTEGER NOT NULL,
        PRIMARY KEY (transfer, node)) WITHOUT ROWID""",
    """CREATE TABLE decisions (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        at_s INTEGER NOT NULL,
        uid INTEGER NOT NULL,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        outcome TEXT NOT NULL,
        reason TEXT NOT NULL,
        details TEXT NOT NULL)""",
    "CREATE INDEX decisions_by_name ON decisions (name, number)",
    """CREATE TABLE answers (
        uid INTEGER NOT NULL,
        key TEXT NOT NULL,
        request_hash TEXT NOT NULL,
        text TEXT NOT NULL,
        at_s INTEGER NOT NULL,
        PRIMARY KEY (uid, key)) WITHOUT ROWID""",
    "CREATE INDEX answers_by_time ON answers (at_s)",
    """CREATE TABLE todo (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        identity TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL,
        subject TEXT NOT NULL,
        payload TEXT NOT NULL,
        created_s INTEGER NOT NULL,
        due_s INTEGER NOT NULL,
        attempts INTEGER NOT NULL,
        trouble TEXT NOT NULL,
        done_s INTEGER)""",
    "CREATE INDEX todo_left ON todo (subject, number) WHERE done_s IS NULL",
    "CREATE INDEX todo_done ON todo (done_s) WHERE done_s IS NOT NULL",
    """CREATE TABLE nodes (
        name TEXT PRIMARY KEY,
        reported_s INTEGER NOT NULL,
        is_available INTEGER NOT NULL,
        report TEXT NOT NULL) WITHOUT ROWID""",
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)

VERSION_2 = (
    "ALTER TABLE nodes ADD COLUMN pool TEXT",
    "CREATE TABLE runs (name TEXT PRIMARY KEY, kept TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE run_needs (
        run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
        transfer INTEGER NOT NULL REFERENCES transfers DEFERRABLE INITIALLY DEFERRED,
        PRIMARY KEY (run, transfer)) WITHOUT ROWID""",
    "CREATE INDEX run_needs_by_transfer ON run_needs (transfer)",
    "CREATE INDEX decisions_by_time ON decisions (at_s)",
)

VERSION_3 = ("""ALTER TABLE reservations ADD COLUMN document TEXT NOT NULL DEFAULT '{"version":1}'""",)

VERSION_4 = (
    """CREATE TABLE ledger (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        at_s INTEGER NOT NULL,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        uid INTEGER NOT NULL,
        user TEXT NOT NULL,
        account TEXT NOT NULL,
        primary_group TEXT NOT NULL,
        node_seconds INTEGER NOT NULL,
        amount INTEGER NOT NULL)""",
    "CREATE INDEX ledger_by_time ON ledger (at_s)",
)

# The file as a whole.

SET_APPLICATION_ID = f"PRAGMA application_id = {APPLICATION_ID}"
GET_APPLICATION_ID = "PRAGMA application_id"
WRITE_AHEAD = "PRAGMA journal_mode = WAL"
ONE_FILE = "PRAGMA journal_mode = DELETE"
KEEP_REFERENCES = "PRAGMA foreign_keys = ON"
BOUND_LOG = "PRAGMA journal_size_limit = 67108864"
SYNC_ALWAYS = "PRAGMA synchronous = FULL"
SYNC_LATER = "PRAGMA synchronous = NORMAL"
CHECK_QUICKLY = "PRAGMA quick_check(1)"
CHECK_WHOLLY = "PRAGMA integrity_check(1)"
BEGIN = "BEGIN IMMEDIATE"
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"
BROKEN_REFERENCES = "PRAGMA foreign_key_check"
TABLES = "SELECT count(*) FROM sqlite_master WHERE type = 'table'"
LAST_NUMBER = "SELECT seq FROM sqlite_sequence WHERE name = ?"
SKIP_NUMBERS = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?"
SKIP_FIRST_NUMBERS = "INSERT INTO sqlite_sequence (seq, name) VALUES (?, ?)"
