"""Several heads over one database: who leads, who stands by, and how a service comes by its store."""
