"""The store, the batch system and the nodes compared, and what differs repaired."""
