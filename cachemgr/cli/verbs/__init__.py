"""The commands of `cachemgr`, a module for each group."""
