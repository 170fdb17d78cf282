"""Arithmetic that a person wrote into an order, evaluated without running anything of it."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction

_LONGEST = 400
_LARGEST_POWER = 4096
_LARGEST_BITS = 1 << 16
"""Of a numerator or denominator on the way; whatever an order reckons with is far smaller."""
_BINARY: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def evaluate(expression: str, names: Mapping[str, Decimal]) -> Fraction:
    """The exact value of ``expression``; a root alone is a binary64 number.

    Raises ValueError for anything but numbers, names, ``+ - * / **``, gcd, min, max, and for what binary64 cannot hold.
    """
    if len(expression) > _LONGEST:
        raise ValueError(f"an expression of more than {_LONGEST} characters")
    try:
        value = _value(ast.parse(expression, mode="eval").body, names)
        float(value)
    except ZeroDivisionError:
        raise ValueError(f"{expression!r} has no value: it divides by zero") from None
    except OverflowError:
        raise ValueError(f"{expression!r} has no value: it is beyond what binary64 holds") from None
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{expression!r} has no value: {error}") from None
    return value


def names_in(expression: str) -> frozenset[str]:
    """Names that ``expression`` reckons with, without those of functions; none where it is no expression."""
    try:
        tree = ast.parse(expression, mode="eval")
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        return frozenset()
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called)


def _value(node: ast.expr, names: Mapping[str, Decimal]) -> Fraction:
    value = _unbounded(node, names)
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _LARGEST_BITS:
        raise ValueError(f"{ast.unparse(node)!r} is too long a number")
    return value


def _unbounded(node: ast.expr, names: Mapping[str, Decimal]) -> Fraction:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as value):
            return Fraction(value if isinstance(value, int) else repr(value)) if math.isfinite(value) else _infinite()
        case ast.Name(id=name):
            if name not in names:
                raise ValueError(f"no fact {name.replace('_', '-')!r} with a value")
            return Fraction(names[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left, names), _value(right, names))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            return _BINARY[type(sign)](_value(left, names), _value(right, names))
        case ast.Call(func=ast.Name(id="gcd"), args=args, keywords=[]):
            return Fraction(math.gcd(*(_whole(_value(one, names)) for one in args)))
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[_, _, *_] as args, keywords=[]):
            return (min if name == "min" else max)(_value(one, names) for one in args)
    raise ValueError(f"{ast.unparse(node)!r} is no arithmetic")


def _infinite() -> Fraction:
    raise ValueError("a number beyond what binary64 holds")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if abs(exponent) > _LARGEST_POWER:
        raise ValueError(f"a power of {float(exponent):g}")
    if exponent.denominator != 1:
        if base < 0:
            raise ValueError(f"a root of {float(base):g}")
        return Fraction(float(base) ** float(exponent))
    bits = max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(exponent.numerator)
    if bits > _LARGEST_BITS:
        raise ValueError(f"a power of {exponent}: too long a number")
    return base**exponent.numerator


def _whole(value: Fraction) -> int:
    if value.denominator != 1:
        raise ValueError(f"gcd of {float(value):g}, which is no whole number")
    return value.numerator


__all__ = ["evaluate", "names_in"]
