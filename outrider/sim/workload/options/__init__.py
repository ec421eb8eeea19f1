"""Experiments with requests that have several options."""
