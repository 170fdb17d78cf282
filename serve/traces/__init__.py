"""Profiler traces on the host that wrote them, reduced to what fits into a window's evidence; torch is not needed."""
