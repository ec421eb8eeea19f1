"""The API's routes, a module for each group."""
