"""What the service must not forget, in one SQLite file.

`store` is opened by the one service that runs; `records` are the values that go in and come
out; `backup` copies a store while it is in use and puts a copy back.
"""
