"""A library that writes zeros, switched on for one rank at a time, must move the output."""

from __future__ import annotations

from serve.instruments import shift

NAME = "knock-out-zero"
VERSION = 1

reduce = shift.reduce
