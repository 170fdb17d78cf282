"""The steps of a run, one file each. A step takes the run and gives it back with more in it, or an exit code."""
