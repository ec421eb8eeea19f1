"""The scheduling core: decisions only, no clock, no I/O, no randomness.

Every time is an integer of seconds, every size an integer of bytes, every interval
half-open. "No" is a value (`Rejected`), not an exception.
"""
