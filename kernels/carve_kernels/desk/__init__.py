"""The desk: kernels judged and timed in a process of their own, without an engine. Graders, never candidates."""
