"""Best effort: which waiting job starts when, and where, around reservations and by where images are."""
