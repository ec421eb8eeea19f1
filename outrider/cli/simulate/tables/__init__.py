"""What `outrider sim table` prints of a table of the thesis: as words, and as data."""
