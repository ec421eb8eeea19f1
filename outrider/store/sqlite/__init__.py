"""The store of one head: one SQLite file in the hands of one process, and copies of it."""
