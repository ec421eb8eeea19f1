"""Virtual machines of jobs on this node: started, suspended to a file, resumed, moved, ended."""
