"""A deliberately wrong build, switched on for one rank at a time, must move the output."""

from __future__ import annotations

from serve.instruments import shift

NAME = "watermark"
VERSION = 1

reduce = shift.reduce
