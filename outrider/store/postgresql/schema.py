"""The tables of a PostgreSQL database, and what is asked about it as a whole.

They are those of a SQLite file of the same version, with these differences: numbers that are given stand
in the one row of `leader`, which each transaction has to change, so that who leads no more can write
nothing.
"""

from __future__ import annotations

VERSION = 4
"""Which version of the SQLite file's tables these correspond to."""

CREATE = (
    "CREATE TABLE schema (version BIGINT PRIMARY KEY, migrated_s BIGINT NOT NULL)",
    """CREATE TABLE leader (
        is_only BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (is_only),
        epoch BIGINT NOT NULL,
        head TEXT NOT NULL,
        address TEXT NOT NULL,
        since_s BIGINT NOT NULL,
        reservations BIGINT NOT NULL,
        decisions BIGINT NOT NULL,
        ledger BIGINT NOT NULL,
        todo BIGINT NOT NULL)""",
    "INSERT INTO leader VALUES (TRUE, 0, '', '', 0, 0, 0, 0, 0)",
    """CREATE TABLE reservations (
        number BIGINT PRIMARY KEY,
        name TEXT COLLATE "C" NOT NULL,
        state TEXT NOT NULL,
        version BIGINT NOT NULL,
        uid BIGINT NOT NULL,
        "user" TEXT COLLATE "C" NOT NULL,
        account TEXT COLLATE "C" NOT NULL,
        start_s BIGINT NOT NULL,
        accepted_s BIGINT NOT NULL,
        changed_s BIGINT NOT NULL,
        ended_s BIGINT,
        promise TEXT NOT NULL,
        receipt TEXT,
        why TEXT NOT NULL,
        document TEXT NOT NULL)""",
    "CREATE UNIQUE INDEX live_reservations ON reservations (name) WHERE ended_s IS NULL",
    "CREATE INDEX past_reservations ON reservations (ended_s) WHERE ended_s IS NOT NULL",
    "CREATE INDEX reservations_by_name ON reservations (name, number)",
    """CREATE TABLE transfers (
        number BIGINT PRIMARY KEY,
        state TEXT NOT NULL,
        planned_s BIGINT NOT NULL,
        begun_s BIGINT,
        ended_s BIGINT,
        source TEXT NOT NULL,
        size_bytes BIGINT NOT NULL,
        kept TEXT NOT NULL)""",
    "CREATE INDEX live_transfers ON transfers (number) WHERE ended_s IS NULL",
    "CREATE INDEX past_transfers ON transfers (ended_s) WHERE ended_s IS NOT NULL",
    """CREATE TABLE needs (
        reservation BIGINT NOT NULL REFERENCES reservations ON DELETE CASCADE,
        transfer BIGINT NOT NULL REFERENCES transfers DEFERRABLE INITIALLY DEFERRED,
        PRIMARY KEY (reservation, transfer))""",
    "CREATE INDEX needs_by_transfer ON needs (transfer)",
    """CREATE TABLE progress (
        transfer BIGINT NOT NULL REFERENCES transfers ON DELETE CASCADE,
        node TEXT COLLATE "C" NOT NULL,
        moved_bytes BIGINT NOT NULL,
        reported_s BIGINT NOT NULL,
        is_done BIGINT NOT NULL,
        PRIMARY KEY (transfer, node))""",
    """CREATE TABLE decisions (
        number BIGINT PRIMARY KEY,
        at_s BIGINT NOT NULL,
        uid BIGINT NOT NULL,
        kind TEXT NOT NULL,
        name TEXT COLLATE "C" NOT NULL,
        outcome TEXT NOT NULL,
        reason TEXT NOT NULL,
        details TEXT NOT NULL)""",
    "CREATE INDEX decisions_by_name ON decisions (name, number)",
    "CREATE INDEX decisions_by_time ON decisions (at_s)",
    """CREATE TABLE answers (
        uid BIGINT NOT NULL,
        key TEXT COLLATE "C" NOT NULL,
        request_hash TEXT NOT NULL,
        text TEXT NOT NULL,
        at_s BIGINT NOT NULL,
        PRIMARY KEY (uid, key))""",
    "CREATE INDEX answers_by_time ON answers (at_s)",
    """CREATE TABLE todo (
        number BIGINT PRIMARY KEY,
        identity TEXT COLLATE "C" NOT NULL UNIQUE,
        kind TEXT NOT NULL,
        subject TEXT COLLATE "C" NOT NULL,
        payload TEXT NOT NULL,
        created_s BIGINT NOT NULL,
        due_s BIGINT NOT NULL,
        attempts BIGINT NOT NULL,
        trouble TEXT NOT NULL,
        done_s BIGINT)""",
    "CREATE INDEX todo_left ON todo (subject, number) WHERE done_s IS NULL",
    "CREATE INDEX todo_done ON todo (done_s) WHERE done_s IS NOT NULL",
    """CREATE TABLE nodes (
        name TEXT COLLATE "C" PRIMARY KEY,
        reported_s BIGINT NOT NULL,
        is_available BOOLEAN NOT NULL,
        report TEXT NOT NULL,
        pool TEXT)""",
    'CREATE TABLE settings (name TEXT COLLATE "C" PRIMARY KEY, value TEXT NOT NULL)',
    'CREATE TABLE runs (name TEXT COLLATE "C" PRIMARY KEY, kept TEXT NOT NULL)',
    """CREATE TABLE run_needs (
        run TEXT COLLATE "C" NOT NULL REFERENCES runs ON DELETE CASCADE,
        transfer BIGINT NOT NULL REFERENCES transfers DEFERRABLE INITIALLY DEFERRED,
        PRIMARY KEY (run, transfer))""",
    "CREATE INDEX run_needs_by_transfer ON run_needs (transfer)",
    """CREATE TABLE ledger (
        number BIGINT PRIMARY KEY,
        at_s BIGINT NOT NULL,
        kind TEXT NOT NULL,
        name TEXT COLLATE "C" NOT NULL,
        uid BIGINT NOT NULL,
        "user" TEXT COLLATE "C" NOT NULL,
        account TEXT COLLATE "C" NOT NULL,
        primary_group TEXT COLLATE "C" NOT NULL,
        node_seconds BIGINT NOT NULL,
        amount BIGINT NOT NULL)""",
    "CREATE INDEX ledger_by_time ON ledger (at_s)",
)

DROP = "DROP TABLE " + ", ".join(
    ("ledger", "run_needs", "runs", "settings", "nodes", "todo", "answers", "decisions", "progress", "needs",
     "transfers", "reservations", "leader", "schema")
)  # fmt: skip

# What is asked of the server.

SETTINGS = (
    "SELECT current_schema(), current_setting('server_encoding'), current_setting('fsync'), "
    "current_setting('full_page_writes'), current_setting('track_activities')"
)
TABLES = """SELECT count(*) FROM information_schema.tables
    WHERE table_schema = current_schema() AND table_name IN ('schema', 'leader', 'reservations')"""
SYNC_ALWAYS = """SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
    WHEN 'off' THEN 'on' WHEN 'local' THEN 'on' ELSE current_setting('synchronous_commit') END, false)"""
SYNC_LATER = "SET LOCAL synchronous_commit TO off"
BEGIN = "BEGIN"
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"

# Who leads. A lock that belongs to a session, so that the server gives it back when its owner dies.

_LOCK = "(1333097074, hashtext(current_schema()))"
TRY_LOCK = f"SELECT pg_try_advisory_lock{_LOCK}"
LOCK_HOLDER = """SELECT holder.pid, session.query_start FROM pg_locks AS holder
    JOIN pg_stat_activity AS session USING (pid)
    WHERE holder.locktype = 'advisory' AND holder.granted AND holder.classid = 1333097074
    AND holder.objid::bigint = (hashtext(current_schema())::bigint + 4294967296) % 4294967296
    AND holder.database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
END_SESSION = "SELECT pg_terminate_backend(CAST(? AS INTEGER))"
END_WRITERS = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = ? AND usename = current_user AND datname = current_database()"""
OTHERS = """SELECT count(*) FROM pg_stat_activity
    WHERE application_name = ? AND datname = current_database() AND pid <> pg_backend_pid()"""
LEAD = """UPDATE leader SET epoch = epoch + 1, head = ?, address = ?, since_s = ?
    RETURNING epoch"""
LEADER = "SELECT epoch, head, address, since_s FROM leader"
NUMBERS = "SELECT epoch, reservations, decisions, ledger, todo FROM leader"
# Of another epoch than this one nothing can be put there: the column takes no NULL.
FENCE = """UPDATE leader SET epoch = CASE WHEN epoch = ? THEN epoch ELSE NULL END,
    reservations = ?, decisions = ?, ledger = ?, todo = ?"""
