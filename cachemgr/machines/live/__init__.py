"""Running machines that go to another place and hardly stop: on this node, or over the network."""
