"""One expert's scale on one rank, changed by a drawn factor, must move the output."""

from __future__ import annotations

from serve.instruments import shift

NAME = "perturbation"
VERSION = 1

reduce = shift.reduce
