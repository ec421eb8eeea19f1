"""The store of several heads, one of which leads: a PostgreSQL database.

`leadership` says who may write, `tables` writes, `schema` has the tables, `connection` opens connections
and names what goes wrong with them.
"""
