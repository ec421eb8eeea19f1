"""What decides and remembers: one event in, replies and calls out, without thread, socket or clock.

`desk` takes an event and `dispatch` a request; `components` makes what the rooms have. `reservations` and
`jobs` carry out what was decided, `nodes` says what each node is to have, `batch` what the batch system is to
be told, `reconcile` compares it with the world; `state` is what is known, and `views` show it.
"""
