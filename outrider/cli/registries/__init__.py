"""A user's logins at registries: where they are found on this machine, and given to the service."""
