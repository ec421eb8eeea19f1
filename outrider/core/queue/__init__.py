"""Waiting workspaces: who is placed when, where, and around which reservations."""
