"""What keeps leases from costing best effort too much: what they would cost, and first slices of time."""
