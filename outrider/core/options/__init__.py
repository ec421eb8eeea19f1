"""Requests that can be carried out in several ways, and schemes that choose among requests and ways."""
