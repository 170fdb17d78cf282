"""Tables whose words can be copied, however narrow the place is."""

from __future__ import annotations

import pytest
from rich.table import Table

from runner.commands.output import print_table

COMMAND, RUN = "runner execute orders/mini-lna2.yaml --resume 20261130-085607-1c4b04b9", "20261130-085607-1c4b04b9"
PROSE = "a long reason of many words " * 8


@pytest.mark.parametrize("terminal", [False, True])
def test_what_a_person_copies_is_never_broken(
    *, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "next"):
        table.add_column(heading, no_wrap=True)
    table.add_column("reason")
    table.add_row(RUN, COMMAND, PROSE)
    print_table(table)
    lines = capsys.readouterr().out.splitlines()
    assert any(RUN in line and COMMAND in line for line in lines)
    assert (len(lines) == 2) is not terminal  # for a pipe one line a row
