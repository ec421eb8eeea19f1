"""Asking a daemon, here or on another machine, and who is believed there."""
