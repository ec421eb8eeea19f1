"""The pool of one node: images, pins, room, and the check of what is on the disk."""
