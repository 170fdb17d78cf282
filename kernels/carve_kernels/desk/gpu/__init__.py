"""The desk on a GPU: reference, parity, times against incumbents, pressure, sanitizer. Graders, never candidates."""
