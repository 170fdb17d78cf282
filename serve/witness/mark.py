"""A line in an engine's own output by which a reader knows that everything printed before it has arrived.

A log comes through pipes, in a container through two and a daemon: an answer over HTTP overtakes it.
"""

from __future__ import annotations

import sys

STREAMS = 2
"""How often each rank prints a mark: once into each of the two streams, which arrive one independently of the other."""


def print_mark(text: str) -> None:
    """Print ``text`` as a line of both streams, behind all that this process and those before it have written."""
    for stream in (sys.stdout, sys.stderr):
        print(text, file=stream, flush=True)
