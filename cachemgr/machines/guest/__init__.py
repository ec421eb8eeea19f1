"""What goes into a guest and comes out of it: the job, its files, its output, its exit status."""
