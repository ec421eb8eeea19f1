"""What the desk answers, by subject: frozen values that travel as JSON objects with the same names.

Times are seconds since 1970 and sizes are bytes; nodes are sets in brackets, n[1-4,7]. What
whoever asks may not see is None. A command imports what it reads alone: to make all of these
classes takes a fifth of its time.
"""
