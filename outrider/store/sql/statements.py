"""All statements of the store, in the words that SQLite 3.26 and PostgreSQL both understand.

Times are seconds since 1970, sizes bytes; columns are called as the fields of the values. A value's place
is `?`. The tables themselves are made by each database's own module `schema`.
"""

from __future__ import annotations

from collections.abc import Sequence


def _listed(columns: Sequence[str]) -> str:
    """Columns by name. To PostgreSQL `user` without quotes is who asks."""
    return ", ".join(f'"{name}"' if name == "user" else name for name in columns)


# Settings of the store's own.

SET_SETTING = """INSERT INTO settings (name, value) VALUES (?, ?)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value"""
# The larger one of two numbers stays.
RAISE_SETTING = SET_SETTING + " WHERE CAST(settings.value AS BIGINT) < CAST(excluded.value AS BIGINT)"
GET_SETTING = "SELECT value FROM settings WHERE name = ?"
GET_VERSION = "SELECT max(version) FROM schema"
ADD_VERSION = "INSERT INTO schema (version, migrated_s) VALUES (?, ?)"

# Reservations.

RESERVATION_COLUMNS = (
    "promise", "uid", "user", "account", "state", "version", "number", "accepted_s", "changed_s", "ended_s",
    "receipt", "why", "document",
)  # fmt: skip
_RESERVATION = f"SELECT {_listed(RESERVATION_COLUMNS)} FROM reservations"
ADD_RESERVATION = """INSERT INTO reservations (number, name, state, version, uid, "user", account, start_s,
    accepted_s, changed_s, promise, why, document) VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, '', ?)"""
CHANGE_RESERVATION = """UPDATE reservations SET state = ?, version = version + 1, start_s = ?, changed_s = ?,
    ended_s = ?, promise = ?, receipt = ?, why = ?, document = ? WHERE number = ? AND version = ?"""
LIVE_NAME = "SELECT number FROM reservations WHERE name = ? AND ended_s IS NULL"
LAST_RESERVATION = _RESERVATION + " WHERE name = ? ORDER BY number DESC LIMIT 1"
LIVE_RESERVATIONS = _RESERVATION + " WHERE ended_s IS NULL ORDER BY number"
PAST_RESERVATIONS = _RESERVATION + " WHERE ended_s IS NOT NULL AND number < ? ORDER BY number DESC LIMIT ?"
PAST_OF_STEM = (
    _RESERVATION
    + """ WHERE name > ? AND name < ? AND ltrim(substr(name, CAST(? AS INTEGER)), '0123456789') = ''
    AND ended_s IS NOT NULL AND (uid = ? OR ?) ORDER BY number DESC LIMIT ?"""
)
PAST_PROMISES = "SELECT promise, ended_s FROM reservations WHERE ended_s > ? AND start_s < ended_s"
ADD_NEED = "INSERT INTO needs (reservation, transfer) VALUES (?, ?) ON CONFLICT DO NOTHING"
DROP_NEEDS = "DELETE FROM needs WHERE reservation = ?"

# Transfers.

TRANSFER_COLUMNS = ("kept", "state", "planned_s", "begun_s", "ended_s")
_TRANSFER = f"SELECT {_listed(TRANSFER_COLUMNS)} FROM transfers"
GET_TRANSFER = _TRANSFER + " WHERE number = ?"
GET_TRANSFER_STATE = "SELECT state, begun_s FROM transfers WHERE number = ?"
ADD_TRANSFER = """INSERT INTO transfers (number, state, planned_s, begun_s, ended_s, source, size_bytes, kept)
    VALUES (?, ?, ?, ?, ?, '', ?, ?)"""
CHANGE_TRANSFER = "UPDATE transfers SET state = ?, begun_s = ?, ended_s = ?, kept = ? WHERE number = ?"
END_TRANSFER = "UPDATE transfers SET state = ?, ended_s = ? WHERE number = ?"
LIVE_TRANSFERS = _TRANSFER + " WHERE ended_s IS NULL ORDER BY number"
# What is done is kept as long as a live reservation has copies that it brought.
KEPT_TRANSFERS = """SELECT kept FROM transfers WHERE ended_s IS NULL OR (state = 'done' AND number IN (
    SELECT transfer FROM needs JOIN reservations ON reservations.number = needs.reservation
    WHERE reservations.ended_s IS NULL))
    ORDER BY number"""

# Decisions and answers.

DECISION_COLUMNS = ("number", "at_s", "uid", "kind", "name", "outcome", "reason", "details")
ADD_DECISION = f"INSERT INTO decisions ({_listed(DECISION_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_DECISION = f"SELECT {_listed(DECISION_COLUMNS)} FROM decisions"
DECISIONS = _DECISION + " WHERE number < ? ORDER BY number DESC LIMIT ?"
DECISIONS_ABOUT = _DECISION + " WHERE name = ? AND number < ? ORDER BY number DESC LIMIT ?"
DECISIONS_SINCE = _DECISION + " WHERE number > ? ORDER BY number LIMIT ?"
ANSWER_COLUMNS = ("uid", "key", "request_hash", "text", "at_s")
ADD_ANSWER = f"INSERT INTO answers ({_listed(ANSWER_COLUMNS)}) VALUES (?, ?, ?, ?, ?)"
CHANGE_ANSWER = "UPDATE answers SET text = ? WHERE uid = ? AND key = ?"
HAS_ANSWER = "SELECT at_s FROM answers WHERE uid = ? AND key = ?"
GET_ANSWER = f"SELECT {_listed(ANSWER_COLUMNS)} FROM answers WHERE uid = ? AND key = ?"

# What was charged.

ADD_ENTRY = """INSERT INTO ledger (number, at_s, kind, name, uid, "user", account, primary_group,
    node_seconds, amount) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
PAYERS = {"user": '"user"', "account": "account", "group": "primary_group"}
LEDGER_SUMS = {
    by: f"""SELECT {column}, kind, count(*),
    CAST(sum(node_seconds) AS BIGINT), CAST(sum(amount) AS BIGINT) FROM ledger
    WHERE at_s >= ? AND at_s < ? AND (uid = ? OR ?) GROUP BY {column}, kind ORDER BY {column}, kind"""
    for by, column in PAYERS.items()
}

# What is still to be done.

EFFECT_COLUMNS = ("identity", "kind", "subject", "payload", "created_s", "due_s", "attempts", "trouble")
ADD_EFFECT = f"INSERT INTO todo (number, {_listed(EFFECT_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)" + (
    " ON CONFLICT (identity) DO NOTHING"
)
_EFFECT = f"SELECT {_listed(EFFECT_COLUMNS)} FROM todo"
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

RETRY_EFFECTS = "UPDATE todo SET due_s = ? WHERE due_s > ? AND trouble <> '' AND done_s IS NULL"
RETRY_EFFECTS_OF = RETRY_EFFECTS + " AND subject = ?"
HASTEN_EFFECTS = "UPDATE todo SET due_s = ? WHERE due_s > ? AND done_s IS NULL"

# Nodes.

SET_NODE = """INSERT INTO nodes (name, reported_s, is_available, report, pool) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET reported_s = excluded.reported_s,
    is_available = excluded.is_available, report = excluded.report, pool = excluded.pool"""
NODE_COLUMNS = ("name", "reported_s", "is_available", "report", "pool")
NODES = f"SELECT {_listed(NODE_COLUMNS)} FROM nodes ORDER BY name"
DROP_NODE = "DELETE FROM nodes WHERE name = ?"

# What is old: each with how many rows at most.

PRUNE = {
    "reservations": """DELETE FROM reservations WHERE number IN (
        SELECT number FROM reservations WHERE ended_s < ? ORDER BY ended_s LIMIT ?)""",
    "transfers": """DELETE FROM transfers WHERE number IN (
        SELECT number FROM transfers WHERE ended_s < ? AND number NOT IN (SELECT transfer FROM needs)
        ORDER BY ended_s LIMIT ?)""",
    "decisions": """DELETE FROM decisions WHERE number IN (
        SELECT number FROM decisions WHERE at_s < ? ORDER BY at_s LIMIT ?)""",
    "answers": """DELETE FROM answers WHERE (uid, key) IN (
        SELECT uid, key FROM answers WHERE at_s < ? ORDER BY at_s LIMIT ?)""",
    "ledger": """DELETE FROM ledger WHERE number IN (
        SELECT number FROM ledger WHERE at_s < ? ORDER BY at_s LIMIT ?)""",
    "todo": """DELETE FROM todo WHERE number IN (
        SELECT number FROM todo WHERE done_s < ? ORDER BY done_s LIMIT ?)""",
}
