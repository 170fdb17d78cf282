"""Break a module on purpose, one place at a time: conditions inverted or ignored, verdicts softened, errors lost."""

from __future__ import annotations
import __future__

import ast
import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

_INVERSE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


@dataclass(frozen=True)
class Mutant:
    """One broken function of a module."""

    function: str
    what: str
    """``line: source → what became of it``."""
    code: CodeType


def mutants_of(module: ModuleType) -> Iterator[Mutant]:
    """Every mutant of every function at the module's top level."""
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    tree = ast.parse(source)
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef) or function.decorator_list:
            continue
        for index, node in enumerate(ast.walk(function)):
            for label, replacement in _replacements(node):
                broken = copy.deepcopy(function)
                _replace(broken, index, replacement)
                whole = ast.fix_missing_locations(ast.Module(body=[broken], type_ignores=[]))
                code = compile(
                    whole, str(module.__file__), "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True
                )
                line = getattr(node, "lineno", function.lineno)
                what = f"{line}: {ast.unparse(node).splitlines()[0]} → {label}"
                yield Mutant(function.name, what, _function_code(code, function.name))


def _replacements(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            inverted = copy.deepcopy(node)
            inverted.ops[place] = _INVERSE[type(operator)]()
            yield "inverted", inverted
        yield "True", ast.Constant(True)
        yield "False", ast.Constant(False)
    elif isinstance(node, ast.If | ast.IfExp) and not isinstance(node.test, ast.Compare):
        for value in (True, False):
            forced = copy.deepcopy(node)
            forced.test = ast.Constant(value)
            yield f"if {value}", forced
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Status":
        if node.attr != "PASS":
            yield "Status.PASS", ast.Attribute(node.value, "PASS", node.ctx)
    elif isinstance(node, ast.ExceptHandler):
        swallowed = copy.deepcopy(node)
        swallowed.body = [ast.Pass()]
        yield "swallowed", swallowed


def _replace(root: ast.AST, index: int, replacement: ast.AST) -> None:
    """Put ``replacement`` where the walk meets its ``index``-th node."""
    target = list(ast.walk(root))[index]
    for parent in ast.walk(root):
        for field, value in ast.iter_fields(parent):
            if value is target:
                setattr(parent, field, replacement)
            elif isinstance(value, list) and any(item is target for item in value):
                value[:] = [replacement if item is target else item for item in value]


def _function_code(module: CodeType, name: str) -> CodeType:
    return next(part for part in module.co_consts if isinstance(part, CodeType) and part.co_name == name)


@contextmanager
def broken(module: ModuleType, mutant: Mutant) -> Iterator[None]:
    """The module with that function broken, also for those who imported it by name."""
    function = getattr(module, mutant.function)
    assert isinstance(function, FunctionType)
    whole = function.__code__
    function.__code__ = mutant.code
    try:
        yield
    finally:
        function.__code__ = whole
