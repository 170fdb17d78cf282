"""The desk on a GPU: reference, parity, timing against incumbents, pressure and sanitizer. Graders, never candidates."""
