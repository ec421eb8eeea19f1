"""How answers of the service are shown on a terminal."""
