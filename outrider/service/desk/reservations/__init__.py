"""Reservations: from the request to the decision, through their life, to the end of their transfers."""
