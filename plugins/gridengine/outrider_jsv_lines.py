"""What Grid Engine's submit filter reads, cut into lines, of which none is kept beyond a limit."""

TOO_LONG = "\x00too long"
MOST_KEPT_BYTES = 1 << 20
"""Of a job, whatever its line breaks make of it: of a line, and of all lines that a verdict depends on."""


class Lines:
    """What is read, line by line; of one that is longer than the limit no more is kept."""

    def __init__(self):
        self._parts, self._bytes = [], 0

    @property
    def is_between(self):
        """Whether the last line has ended."""
        return not self._bytes

    def of(self, data):
        """The lines that end in these bytes, which are fewer than the limit."""
        *lines, rest = data.split(b"\n")
        if lines:
            if self._parts:
                self._add(lines[0])
                lines[0] = b"".join(self._parts)
            self._parts, self._bytes = [], 0
        if rest:
            self._add(rest)
        return lines

    def _add(self, part):
        left = MOST_KEPT_BYTES - self._bytes
        self._bytes += len(part)
        if len(part) <= left:
            self._parts.append(part)
        elif left >= 0:
            self._parts.append(part[:left] + TOO_LONG.encode())
