"""Kinds of lease beside the plain reservation: open ones, recurring ones, offers in place of a refusal."""
