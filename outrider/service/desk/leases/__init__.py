"""Kinds of lease beside the plain reservation: what is offered instead of a refusal."""
