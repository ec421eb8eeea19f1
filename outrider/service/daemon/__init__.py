"""The process around the desk: its threads, its sockets, its files, its configuration and its numbers.

`main` reads what it is told, `life` puts everything together and takes it apart again, `loop` is the
thread that owns the desk, `workers` carry out what the desk calls for.
"""
