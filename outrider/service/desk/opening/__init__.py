"""Open reservations: nodes and images that are ready for an event."""
