"""Values as people write them: amounts, lengths of time, points in time, sets of nodes."""
