"""The nodes' pools, as the service reaches them.

`agent` carries out orders on one daemon, `daemons` finds that of a node on this machine, `remote`
that of a node on the network, and `embedded` runs virtual nodes on this machine.
"""
