"""Connections to the API: who may have one, and whose they are."""
