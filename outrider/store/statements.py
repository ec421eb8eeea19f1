"""All SQL of the store. It keeps to what SQLite 3.26 understands, which old enterprise systems have.

Times are seconds since 1970, sizes bytes; columns are called as the fields of the values. What begins
with `version_` is a step of the schema and never changes once it has been published.
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
GET_VERSION = "SELECT max(version) FROM schema"
ADD_VERSION = "INSERT INTO schema (version, migrated_s) VALUES (?, ?)"
SET_SETTING = "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)"
GET_SETTING = "SELECT value FROM settings WHERE name = ?"

# Reservations.

RESERVATION_COLUMNS = (
    "promise", "uid", "user", "account", "state", "version", "number", "accepted_s", "changed_s", "ended_s",
    "receipt", "why", "document",
)  # fmt: skip
_RESERVATION = f"SELECT {', '.join(RESERVATION_COLUMNS)} FROM reservations"
ADD_RESERVATION = """INSERT INTO reservations (name, state, version, uid, user, account, start_s, accepted_s,
    changed_s, promise, why, document) VALUES (?, ?, 1, ?, ?, ?, ?, ?, ?, ?, '', ?)"""
LAST_NUMBER_GIVEN = "SELECT seq FROM sqlite_sequence WHERE name = 'reservations'"
SKIP_NUMBERS = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'reservations'"
SKIP_FIRST_NUMBERS = "INSERT INTO sqlite_sequence (name, seq) VALUES ('reservations', ?)"
CHANGE_RESERVATION = """UPDATE reservations SET state = ?, version = version + 1, start_s = ?, changed_s = ?,
    ended_s = ?, promise = ?, receipt = ?, why = ?, document = ? WHERE number = ? AND version = ?"""
LIVE_RESERVATION = _RESERVATION + " WHERE name = ? AND ended_s IS NULL"
LAST_RESERVATION = _RESERVATION + " WHERE name = ? ORDER BY number DESC LIMIT 1"
LIVE_RESERVATIONS = _RESERVATION + " WHERE ended_s IS NULL ORDER BY number"
PAST_RESERVATIONS = _RESERVATION + " WHERE ended_s IS NOT NULL AND number < ? ORDER BY number DESC LIMIT ?"
PAST_OF_STEM = (
    _RESERVATION
    + """ WHERE name > ? AND name < ? AND name NOT GLOB ? AND ended_s IS NOT NULL AND (uid = ? OR ?)
    ORDER BY number DESC LIMIT ?"""
)
PAST_PROMISES = "SELECT promise, ended_s FROM reservations WHERE ended_s > ? AND start_s < ended_s"
ADD_NEED = "INSERT OR IGNORE INTO needs (reservation, transfer) VALUES (?, ?)"
DROP_NEEDS = "DELETE FROM needs WHERE reservation = ?"

# Transfers.

TRANSFER_COLUMNS = ("kept", "state", "planned_s", "begun_s", "ended_s")
_TRANSFER = f"SELECT {', '.join(TRANSFER_COLUMNS)} FROM transfers"
GET_TRANSFER = _TRANSFER + " WHERE number = ?"
GET_TRANSFER_STATE = "SELECT state, begun_s FROM transfers WHERE number = ?"
ADD_TRANSFER = """INSERT INTO transfers (number, state, planned_s, source, size_bytes, kept)
    VALUES (?, ?, ?, '', ?, ?)"""
CHANGE_TRANSFER = "UPDATE transfers SET state = ?, begun_s = ?, ended_s = ?, kept = ? WHERE number = ?"
END_TRANSFER = "UPDATE transfers SET state = ?, ended_s = ? WHERE number = ?"
LIVE_TRANSFERS = _TRANSFER + " WHERE ended_s IS NULL ORDER BY number"
# What is done is kept as long as a live reservation has copies that it brought.
KEPT_TRANSFERS = """SELECT kept FROM transfers WHERE ended_s IS NULL OR (state = 'done' AND number IN (
    SELECT transfer FROM needs JOIN reservations ON reservations.number = needs.reservation
    WHERE reservations.ended_s IS NULL) OR state = 'done' AND number IN (SELECT transfer FROM run_needs))
    ORDER BY number"""

# Decisions and answers.

DECISION_COLUMNS = ("number", "at_s", "uid", "kind", "name", "outcome", "reason", "details")
ADD_DECISION = f"INSERT INTO decisions ({', '.join(DECISION_COLUMNS[1:])}) VALUES (?, ?, ?, ?, ?, ?, ?)"
_DECISION = f"SELECT {', '.join(DECISION_COLUMNS)} FROM decisions"
DECISIONS = _DECISION + " WHERE number < ? ORDER BY number DESC LIMIT ?"
DECISIONS_ABOUT = _DECISION + " WHERE name = ? AND number < ? ORDER BY number DESC LIMIT ?"
DECISIONS_SINCE = _DECISION + " WHERE number > ? ORDER BY number LIMIT ?"
LAST_DECISION = "SELECT seq FROM sqlite_sequence WHERE name = 'decisions'"
ANSWER_COLUMNS = ("uid", "key", "request_hash", "text", "at_s")
ADD_ANSWER = f"INSERT INTO answers ({', '.join(ANSWER_COLUMNS)}) VALUES (?, ?, ?, ?, ?)"
CHANGE_ANSWER = "UPDATE answers SET text = ? WHERE uid = ? AND key = ?"
GET_ANSWER = f"SELECT {', '.join(ANSWER_COLUMNS)} FROM answers WHERE uid = ? AND key = ?"

# What was charged.

ADD_ENTRY = """INSERT INTO ledger (at_s, kind, name, uid, user, account, primary_group, node_seconds, amount)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
PAYERS = {"user": "user", "account": "account", "group": "primary_group"}
LEDGER_SUMS = {
    by: f"""SELECT {column}, kind, count(*), sum(node_seconds), sum(amount) FROM ledger
    WHERE at_s >= ? AND at_s < ? AND (uid = ? OR ?) GROUP BY {column}, kind ORDER BY {column}, kind"""
    for by, column in PAYERS.items()
}

# What is still to be done.

EFFECT_COLUMNS = ("identity", "kind", "subject", "payload", "created_s", "due_s", "attempts", "trouble")
ADD_EFFECT = f"INSERT INTO todo ({', '.join(EFFECT_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_EFFECT = f"SELECT {', '.join(EFFECT_COLUMNS)} FROM todo"
GET_EFFECT = _EFFECT + " WHERE identity = ?"
# Of each subject only the first that is left, even if a later one is due before it.
DUE_EFFECTS = (
    _EFFECT
    + """ WHERE number IN (SELECT min(number) FROM todo WHERE done_s IS NULL GROUP BY subject)
    AND due_s <= ? ORDER BY due_s, number LIMIT ?"""
)
NEXT_DUE = """SELECT min(due_s) FROM todo
    WHERE number IN (SELECT min(number) FROM todo WHERE done_s IS NULL GROUP BY subject)"""
WAITING_EFFECTS = _EFFECT + " WHERE subject = ? AND done_s IS NULL ORDER BY number LIMIT ?"
WAITING_SUBJECTS = "SELECT DISTINCT subject FROM todo WHERE done_s IS NULL"
COUNT_EFFECTS = "SELECT count(*) FROM todo WHERE done_s IS NULL"
FINISH_EFFECT = "UPDATE todo SET done_s = ? WHERE identity = ? AND done_s IS NULL"
POSTPONE_EFFECT = """UPDATE todo SET attempts = attempts + 1, trouble = ?, due_s = ?
    WHERE identity = ? AND done_s IS NULL"""

HASTEN_EFFECTS = "UPDATE todo SET due_s = ? WHERE due_s > ? AND done_s IS NULL"

# Nodes and runs.

SET_NODE = (
    "INSERT OR REPLACE INTO nodes (name, reported_s, is_available, report, pool) VALUES (?, ?, ?, ?, ?)"
)
NODE_COLUMNS = ("name", "reported_s", "is_available", "report", "pool")
NODES = f"SELECT {', '.join(NODE_COLUMNS)} FROM nodes ORDER BY name"
DROP_NODE = "DELETE FROM nodes WHERE name = ?"
SET_RUN = "INSERT INTO runs (name, kept) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET kept = excluded.kept"
ADD_RUN_NEED = "INSERT INTO run_needs (run, transfer) VALUES (?, ?)"
DROP_RUN_NEEDS = "DELETE FROM run_needs WHERE run = ?"
DROP_RUN = "DELETE FROM runs WHERE name = ?"
RUNS = "SELECT kept FROM runs ORDER BY name"

# What is old: each with how many rows at most.

PRUNE = {
    "reservations": """DELETE FROM reservations WHERE number IN (
        SELECT number FROM reservations WHERE ended_s < ? ORDER BY ended_s LIMIT ?)""",
    "transfers": """DELETE FROM transfers WHERE number IN (
        SELECT number FROM transfers WHERE ended_s < ? AND number NOT IN (SELECT transfer FROM needs)
        AND number NOT IN (SELECT transfer FROM run_needs) ORDER BY ended_s LIMIT ?)""",
    "decisions": """DELETE FROM decisions WHERE number IN (
        SELECT number FROM decisions WHERE at_s < ? ORDER BY at_s LIMIT ?)""",
    "answers": """DELETE FROM answers WHERE (uid, key) IN (
        SELECT uid, key FROM answers WHERE at_s < ? ORDER BY at_s LIMIT ?)""",
    "ledger": """DELETE FROM ledger WHERE number IN (
        SELECT number FROM ledger WHERE at_s < ? ORDER BY at_s LIMIT ?)""",
    "todo": """DELETE FROM todo WHERE number IN (
        SELECT number FROM todo WHERE done_s < ? ORDER BY done_s LIMIT ?)""",
}
