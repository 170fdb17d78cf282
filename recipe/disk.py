"""What the file system refuses, told as every other error: what, where, found, next step; never as a traceback."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from runner.errors import CarveError, StateError
from runner.visible import told

if TYPE_CHECKING:  # whoever patches an image has no pack
    from recipe.product import Job

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


def refusal(what: str, where: object, error: OSError) -> StateError:
    """The error for a person; ``where`` counts where the system names no file, as on a full disk."""
    named = " → ".join(str(path) for path in (error.filename, error.filename2) if path is not None)
    return StateError(
        what,
        where=named or str(where),
        expected="a place that can be read and written, on a disk with room",
        found=error.strerror or str(error),
        next_step="free the disk or mend the permissions, then run the same again",
    )


def telling(
    what: str,
) -> Callable[[Callable[Concatenate[Job, _Given], _Found]], Callable[Concatenate[Job, _Given], _Found]]:
    """A step of a job whose OSError becomes a StateError that says ``what``."""

    def wrap(step: Callable[Concatenate[Job, _Given], _Found]) -> Callable[Concatenate[Job, _Given], _Found]:
        @functools.wraps(step)
        def told(job: Job, /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Found:
            try:
                return step(job, *args, **kwargs)
            except OSError as error:
                raise refusal(what, job.product, error) from error

        return told

    return wrap


def command(main: Callable[[], int | None]) -> int:
    """The exit code of a command line whose errors a person can mend: they go to standard error."""
    try:
        return main() or 0
    except CarveError as error:
        found = error
    except OSError as error:
        found = refusal("the file system stands in the way", "", error)
    print(told(found), file=sys.stderr)
    return found.exit_code
