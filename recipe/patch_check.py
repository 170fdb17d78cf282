"""What must hold of patched files before they become visible: they compile, and the target's interpreter imports them.

Every module that a patch names is imported with the patched files first on the path, and must bear the markers.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from recipe.patch_set import MARKER, PatchSet
from runner.errors import InputError
from runner.sandbox import Reach, available, confined

_IMPORT = f"""
import importlib, json, sys
found = {{}}
for name in json.loads(sys.argv[1]):
    module = importlib.import_module(name)
    found[name] = [module.__file__, list(getattr(module, {MARKER!r}, ()))]
print("\\n" + json.dumps(found))
"""
_IMPORT_SECONDS = 180
_PASSED = ("PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "LANG", "VLLM_PLUGINS", "TORCHDYNAMO_DISABLE")
"""Of the environment, into a sandbox."""


def compile_all(contents: Mapping[str, bytes]) -> None:
    """Compile the Python files among ``contents`` (name to bytes); InputError with file and line of what does not."""
    for file, content in contents.items():
        if file.endswith(".py"):
            try:
                compile(content, file, "exec", dont_inherit=True)
            except SyntaxError as error:
                raise InputError(
                    "the patched file does not compile", where=f"{file}:{error.lineno}", found=error.msg
                ) from error
            except ValueError as error:  # a null byte
                raise InputError("the patched file does not compile", where=file, found=str(error)) from error


def import_check(python: str, first: Path, patches: PatchSet, site: Path) -> None:
    """Import every module that a patch names, with ``first`` before ``site`` on the path; it must bear the markers.

    A patch is somebody's code, so it runs where it reaches nothing else, where there is a sandbox. Raises InputError
    with the interpreter's last words.
    """
    if not patches.modules:
        return
    command = [python, "-P", "-c", _IMPORT, json.dumps(list(patches.modules))]
    path = os.pathsep.join([str(first), os.environ.get("PYTHONPATH", "")])
    # Bytecode bears times: without it two shadows of the same patches are the same to the byte.
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    if available().tool != "none":
        own = (Path(python).parent,) if Path(python).is_absolute() else ()
        command = confined(command, Reach(reads=(first, site, *own), temporary=False), first)
        environment = {name: environment[name] for name in _PASSED if name in environment} | {"HOME": "/tmp"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=_IMPORT_SECONDS, check=False)
    except OSError as error:
        raise InputError(
            "the interpreter cannot be started", where=python, expected="Python", found=str(error.strerror)
        ) from error
    except subprocess.TimeoutExpired as error:
        raise InputError("the patched modules do not finish importing", found=f"{_IMPORT_SECONDS} s") from error
    if done.returncode:
        raise InputError(
            "a patched module does not import",
            where=", ".join(patches.modules),
            expected="exit code 0",
            found="\n    ".join(["", *done.stderr.decode(errors="replace").strip().splitlines()[-4:]]),
        )
    found = _answer(done.stdout)
    for module, file in patches.modules.items():
        if found.get(module) != [str(first / file), list(patches.markers(file))]:
            raise InputError(
                "Python imports another file than the patched one",
                where=module,
                expected=f"{first / file} with {', '.join(patches.markers(file))}",
                found=ascii(found.get(module, "no answer: the interpreter ended before it"))[:300],
            )


def _answer(said: bytes) -> dict[str, object]:
    """What the interpreter found, by module: the last line that is an object, whatever the modules print themselves."""
    for line in reversed(said.decode(errors="replace").splitlines()):
        with contextlib.suppress(ValueError):
            if isinstance(found := json.loads(line), dict):
                return found
    return {}
