"""A store in the tables of a database, whichever that is.

`statements` has all SQL but the tables' own, `writes` and `reading` use it, `rows` makes values of what
comes back, and `tables` says what a database has to do for them.
"""
