"""The nodes' pools, as the service reaches them.

`agent` carries out orders on one daemon, `daemons` finds the daemon of a node, and `embedded`
runs virtual nodes on this machine.
"""
