"""Switches of the whole site: machines of jobs moved by one plan, which is stored before its first step."""
