"""Images in nodes' pools: where each one is or will be, and until when."""
