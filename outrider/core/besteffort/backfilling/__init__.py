"""What every walk through a queue obeys: who may overtake whom, and who of a group could start at all."""
