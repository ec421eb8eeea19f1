"""What decides and remembers: one event in, replies and calls out, without thread, socket or clock.

`desk` takes an event, `answering` and `admitting` deal with requests, `executing`, `copies`, `alarms`
and `mending` carry the plan out, `reconciling` compares it with the world, `lifetimes` begins and
ends. `site` and `staff` are what is known of promises and of nodes; `views` and `siteviews` show it.
"""
