"""Where images come from: a module for each kind of address."""
