"""A report for the eye: in the terminal, and as one page that needs nothing else."""
