"""Best-effort jobs: where their images go, when they are released, and what users see of them."""
