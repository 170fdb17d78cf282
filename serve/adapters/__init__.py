"""Adapters: how each kind of seat starts an engine."""
