"""Requests as they come: JSON, its models, and the values made of them."""
