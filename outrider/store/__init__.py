"""What the service must not forget.

`store` says what a store does; `sql` does it in the tables of a database, `sqlite` keeps those in one file,
`postgresql` in a database that several heads share. `records` are the values that go in and come out.
"""
