"""QEMU on this node: its command line, its process, its monitor, and what it is asked for."""
