"""The seat: adapters that start an engine, the client that talks to it, instruments, plugin and witness."""
