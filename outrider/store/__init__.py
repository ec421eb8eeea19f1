"""What the service must not forget.

`store` says what a store does, `sqlite_store` does it in one SQLite file; `records` are the values
that go in and come out; `backup` copies a store while it is in use and puts a copy back.
"""
