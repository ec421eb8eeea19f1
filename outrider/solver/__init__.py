"""Solvers for problems of the core: they are handed in, so that the core needs none of them."""
