"""``runner``: the command line. Imports nothing heavy, so that help is there at once."""

from __future__ import annotations

import io
import json
import sys
import traceback
from collections.abc import Sequence
from typing import cast

import typer

from runner.commands import canon, craft, decisions, evidence, execution, orders, views
from runner.errors import CarveError, InputError, StateError
from runner.visible import told, visible

_CLICK_ERROR = cast("type[Exception]", typer.BadParameter.__mro__[2])
"""ClickException, wherever this version of Typer keeps its Click."""
MALFORMED, UNDECIDED, INTERRUPTED = 3, 2, 130

app = typer.Typer(
    name="runner",
    help="Work orders in, signed evidence out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for group in (orders, craft, execution, views, evidence, decisions, canon):
    group.register(app)


def run(arguments: Sequence[str]) -> int:
    """The exit code: 0 pass, 1 a gate failed, 2 could not decide, 3 malformed or untrusted."""
    as_json = "--json" in arguments
    try:
        answer = app(args=list(arguments), standalone_mode=False, prog_name="runner")
    except CarveError as error:
        _say(error, as_json=as_json)
        return error.exit_code
    except _CLICK_ERROR as error:
        return _wrong_usage(error, as_json=as_json)
    except OSError as error:
        where = " → ".join(str(path) for path in (error.filename, error.filename2) if path)
        _say(
            StateError("the file system stands in the way", where=where, found=str(error.strerror or error)),
            as_json=as_json,
        )
        return UNDECIDED
    except (typer.Abort, KeyboardInterrupt):
        return _stopped()
    except Exception as error:  # noqa: BLE001  # a fault of this program is no verdict: 1 means that a gate failed
        sys.stderr.write(visible(traceback.format_exc(), keep="\n"))
        _say(CarveError("a fault of this program", found=f"{type(error).__name__}: {error}"), as_json=as_json)
        return UNDECIDED
    if answer == INTERRUPTED:  # what Typer makes of an interrupt
        return _stopped()
    return answer if isinstance(answer, int) else 0


def _stopped() -> int:
    sys.stderr.write("stopped; `runner status` shows what can be resumed\n")
    return UNDECIDED


def _wrong_usage(error: Exception, *, as_json: bool) -> int:
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    context = getattr(error, "ctx", None)
    if context and message == context.get_help():  # a group of commands was called without one
        sys.stderr.write(f"{message}\n")
    else:
        command = context.command_path if context else "runner"
        _say(InputError(message, next_step=f"`{command} --help`"), as_json=as_json)
    return MALFORMED


def _say(error: CarveError, *, as_json: bool) -> None:
    if as_json:
        fields = ("what", "where", "expected", "found", "next_step")
        sys.stdout.write(json.dumps({"error": {name: getattr(error, name) for name in fields}}) + "\n")
    sys.stderr.write(f"error: {told(error)}\n")


def main() -> None:
    """Entry point of the ``runner`` script. A character that the terminal cannot show is written out."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
