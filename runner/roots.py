"""Whose word counts for a report that lies somewhere.

Trusted are the signers of the workspace that one stands in (or names) and one's own. A folder that brings its own
``canon/allowed_signers`` does not vouch for itself: whoever made the folder wrote that file too. Its ledger is read all
the same, because what stands there is signed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runner.attest.dsse import UnknownKeyError
from runner.attest.trust import Trust, load_trust, read_signers_file, repository_file
from runner.paths import command, workspace_around


@dataclass(frozen=True)
class Root:
    """Who is trusted about a report, and where its ledger is."""

    trust: Trust
    ledger: Path | None
    """The workspace whose ledger has the report's intent."""
    foreign: Path | None = None
    """A workspace of its own around the report, whose signers are not trusted."""

    def hint(self, error: UnknownKeyError, path: Path) -> UnknownKeyError:
        """The error, with what a user can do where the report lies in a foreign workspace."""
        if self.foreign is not None and repository_file(self.foreign).is_file():
            brought = repository_file(self.foreign)
            error.found = f"{error.found}; {brought} came with the report and does not vouch for it"
            error.next_step = (
                f"compare the key with its owner's, then `{command('verify', '--trust', brought, path)}`; "
                "or stand in a workspace that trusts it"
            )
        return error


def root_of(path: Path, *, named: Path | None = None, signers: Path | None = None) -> Root:
    """The root for the report at ``path``.

    ``named`` is the workspace that a user names, ``signers`` a file that is trusted instead of any other. Raises
    InputError for a file of signers that cannot be read and a ``CARVE_WORKSPACE`` that is none.
    """
    above = path if path.is_dir() else path.parent
    here, around = named or _workspace(None), _workspace(above.absolute())
    trust = _trusted(here) if signers is None else _signers(signers)
    foreign = around if around is not None and signers is None and around != _resolved(here) else None
    return Root(trust, named or around or here, foreign)


def forget() -> None:
    """Look again for workspaces and read files of signers anew: what :func:`root_of` found is kept until then."""
    _trusted.cache_clear()
    _signers.cache_clear()
    _workspace.cache_clear()


def _resolved(folder: Path | None) -> Path | None:
    return folder.resolve() if folder is not None else None


@cache
def _trusted(folder: Path | None) -> Trust:
    return load_trust(folder)


@cache
def _signers(path: Path) -> Trust:
    return Trust(read_signers_file(path, "user"))


_workspace = cache(workspace_around)


__all__ = ["Root", "forget", "root_of"]
