"""Pure functions from evidence to a sample. They import nothing that serves, builds or signs."""
