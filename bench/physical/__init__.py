"""The thesis' physical experiments (sections 8.1 and 8.2) on real hosts, links, files and Grid Engine.

What decides is the simulator's: `Stager` and `Dispatcher` of outrider.sim.experiments. Here is the
other body: `site` makes the hosts, `engine` asks Grid Engine, `reservations` and `jobs` carry out
what is decided and tell what happened, `measured` puts it beside the simulator's.
"""
