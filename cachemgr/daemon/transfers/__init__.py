"""The daemon's transfers: which run, and what one user may have of them."""
