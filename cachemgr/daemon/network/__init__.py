"""The daemon's connections: on the socket, over the network, and to other nodes."""
