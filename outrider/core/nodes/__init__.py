"""Nodes over time: what each can still give, and until when it is busy."""
