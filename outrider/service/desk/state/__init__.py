"""All that the desk remembers, and the values that it writes down."""
