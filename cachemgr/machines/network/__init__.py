"""The private network between the machines of one job: frames, signed, between switches of the job's user."""
