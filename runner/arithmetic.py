"""Arithmetic that a person wrote into an order, evaluated without running anything of it."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from decimal import Decimal

Number = int | float
_LONGEST = 400
_LARGEST_POWER = 4096
_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def evaluate(expression: str, names: Mapping[str, Decimal]) -> Number:
    """The value of ``expression``. Raises ValueError for anything but numbers, names, ``+ - * / **``, gcd, min, max."""
    if len(expression) > _LONGEST:
        raise ValueError(f"an expression of more than {_LONGEST} characters")
    try:
        return _value(ast.parse(expression, mode="eval").body, names)
    except (SyntaxError, ZeroDivisionError, OverflowError, RecursionError, MemoryError) as error:
        raise ValueError(f"{expression!r} has no value: {error}") from None


def _value(node: ast.expr, names: Mapping[str, Decimal]) -> Number:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name):
            if name not in names:
                raise ValueError(f"no fact {name.replace('_', '-')!r} with a value")
            known = names[name]
            return int(known) if known == known.to_integral_value() else float(known)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            base, exponent = _value(left, names), _value(right, names)
            if abs(exponent) > _LARGEST_POWER:
                raise ValueError(f"a power of {exponent}")
            return float(base) ** exponent
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            return _BINARY[type(sign)](_value(left, names), _value(right, names))
        case ast.Call(func=ast.Name(id="gcd"), args=args, keywords=[]):
            return math.gcd(*(_whole(_value(one, names)) for one in args))
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[_, _, *_] as args, keywords=[]):
            return (min if name == "min" else max)(_value(one, names) for one in args)
    raise ValueError(f"{ast.unparse(node)!r} is no arithmetic")


def _whole(value: Number) -> int:
    if not isinstance(value, int):
        raise ValueError(f"gcd of {value}, which is no whole number")
    return value


__all__ = ["evaluate"]
