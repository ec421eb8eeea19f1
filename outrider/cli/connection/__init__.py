"""How commands reach the service: its socket or its address, and who asks."""
