"""Batch systems behind one small interface: `base` says what is asked of them.

Each adapter is a folder or a module of its own; `twin` is one in memory, which tests, the
simulation of the service and the embedded backend use. None of them decides anything.
"""
