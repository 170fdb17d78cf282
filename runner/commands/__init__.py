"""The commands by theme. Only typer is imported at the top, so that ``runner --help`` stays quick."""
