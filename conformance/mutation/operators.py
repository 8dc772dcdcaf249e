"""The operators: from a node of a syntax tree to the changes that are made of it, each another mutant.

always, never, negate   a condition        argument          an argument by name is left out
compare, logic          inside of it       element           an item of a list is left out, or is there twice
constant, arithmetic    a value            field             another field of a message
delete                  a statement        timing            what waits waits much longer, or comes much later
no-result, unhandled    None; an error     shared, stale     state is kept from one request to the next
one-path                a condition or a statement, on one path only
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

N = TypeVar("N", bound=ast.AST)


class Replacement(NamedTuple):
    """In place of `node` there is `made`: another node, or source text."""

    operator: str
    node: ast.AST
    made: ast.expr | str


COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}

ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitXor,
}
"""`|` is left out: it also makes types."""

FIELDS = {
    "raw_value": "value",
    **{f"request_{part}": f"response_{part}" for part in ("headers", "body", "trailers")},
    **{f"response_{part}": f"request_{part}" for part in ("headers", "body", "trailers")},
    "list_value": "struct_value",
    "string_value": "number_value",
}
"""Fields of ext_proc messages and of `google.protobuf.Value`, and others that they may be taken for."""

LATE = 100
"""How many times as long a wait is."""

WAITS = frozenset({"sleep", "timeout", "wait_for"})
TIMES = ("_SECONDS", "_TIMEOUT", "_INTERVAL")


def conditions(node: ast.AST) -> Iterator[Replacement]:
    """A condition is always true, never true, or the contrary."""
    for test in _tests(node):
        if not isinstance(test, ast.Compare) and not _is_not(test):  # `compare` and `logic` do the same to those
            yield Replacement("negate", test, ast.UnaryOp(ast.Not(), test))
        if not isinstance(node, ast.While):
            yield Replacement("always", test, ast.Constant(value=True))
        yield Replacement("never", test, ast.Constant(value=False))


def _is_not(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _tests(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.If(test=test) | ast.IfExp(test=test):
            yield test
        case ast.While(test=test) if not isinstance(test, ast.Constant):
            yield test
        case ast.comprehension(ifs=tests):
            yield from tests
        case ast.match_case(guard=ast.expr() as guard):
            yield guard


def compare(node: ast.AST) -> Iterator[Replacement]:
    """A comparison is the contrary, or differs at its boundary."""
    if isinstance(node, ast.Compare):
        for index, kind in enumerate(node.ops):
            for other in COMPARISONS[type(kind)]:
                yield Replacement("compare", node, _with(node, ops=_replaced(node.ops, index, other())))


def logic(node: ast.AST) -> Iterator[Replacement]:
    """`and` for `or`, `or` for `and`, one of the operands left out; without `not`."""
    match node:
        case ast.BoolOp(op=op, values=values):
            yield Replacement("logic", node, _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And()))
            for index in range(len(values)):
                rest = _replaced(values, index)
                yield Replacement("logic", node, rest[0] if len(rest) == 1 else _with(node, values=rest))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield Replacement("logic", node, operand)


def constant(node: ast.AST) -> Iterator[Replacement]:
    """Another number, string or truth value. Text with spaces is for people, and stays."""
    if not isinstance(node, ast.Constant):
        return
    value = node.value
    if isinstance(value, bool):
        yield Replacement("constant", node, ast.Constant(value=not value))
    elif isinstance(value, int | float):
        yield Replacement("constant", node, ast.Constant(value=value + 1))
        if isinstance(value, int) and value > 1:
            yield Replacement("constant", node, ast.Constant(value=value - 1))
    elif isinstance(value, str) and " " not in value.strip(" "):
        yield Replacement("constant", node, ast.Constant(value=f"{value}x"))
    elif isinstance(value, bytes):
        yield Replacement("constant", node, ast.Constant(value=value + b"x"))


def arithmetic(node: ast.AST) -> Iterator[Replacement]:
    """Another operation; without a minus."""
    match node:
        case ast.BinOp(op=op) if type(op) in ARITHMETIC:
            yield Replacement("arithmetic", node, _with(node, op=ARITHMETIC[type(op)]()))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield Replacement("arithmetic", node, operand)


def argument(node: ast.AST) -> Iterator[Replacement]:
    """A call without one of its arguments by name."""
    if isinstance(node, ast.Call):
        for index, keyword in enumerate(node.keywords):
            if keyword.arg is not None:
                yield Replacement("argument", node, _with(node, keywords=_replaced(node.keywords, index)))


def element(node: ast.AST) -> Iterator[Replacement]:
    """A list or tuple without one of its items, or with one twice."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        for index, item in enumerate(node.elts):
            yield Replacement("element", node, _with(node, elts=_replaced(node.elts, index)))
            if isinstance(node, ast.List):
                yield Replacement("element", node, _with(node, elts=_replaced(node.elts, index, item, item)))


def field(node: ast.AST) -> Iterator[Replacement]:
    """Another field of a message."""
    if isinstance(node, ast.Attribute) and node.attr in FIELDS:
        yield Replacement("field", node, _with(node, attr=FIELDS[node.attr]))


def waits(node: ast.AST) -> Iterator[Replacement]:
    """A wait takes much longer; what is awaited begins much later."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr=name), args=[*_, seconds]) if name in WAITS:
            yield Replacement("timing", seconds, _times(seconds))
        case ast.keyword(arg="timeout", value=seconds):
            yield Replacement("timing", seconds, _times(seconds))
        case ast.Await(value=awaited):
            yield Replacement("timing", awaited, ast.Call(ast.Name("_late"), [awaited], []))


def times(node: ast.AST) -> Iterator[Replacement]:
    """A time, by its name, is much longer."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.endswith(TIMES):
            yield Replacement("timing", value, _times(value))


def _times(seconds: ast.expr) -> ast.expr:
    return ast.BinOp(seconds, ast.Mult(), ast.Constant(value=LATE))


def delete(node: ast.AST) -> Iterator[Replacement]:
    """A statement is not there."""
    if _can_be_deleted(node):
        yield Replacement("delete", node, "pass")


def _can_be_deleted(node: ast.AST) -> bool:
    match node:
        case ast.Assign(targets=targets):  # without a name that is used later nothing would run
            return all(isinstance(one, ast.Attribute | ast.Subscript) for one in targets)
        case ast.Expr() | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break() | ast.Delete():
            return True
        case ast.Return(value=None):
            return True
        case _:
            return False


def augmented(node: ast.AST) -> Iterator[Replacement]:
    """`-=` for `+=`, or `=`."""
    if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
        target, value = ast.unparse(node.target), ast.unparse(node.value)
        yield Replacement("arithmetic", node, ast.unparse(_with(node, op=ARITHMETIC[type(node.op)]())))
        yield Replacement("arithmetic", node, f"{target} = {value}")


def no_result(node: ast.Return) -> Iterator[Replacement]:
    """None is returned. For functions that may."""
    if node.value is not None:
        yield Replacement("no-result", node.value, ast.Constant(value=None))


def stale(node: ast.AST) -> Iterator[Replacement]:
    """Now and then, what is returned is what was returned before."""
    if isinstance(node, ast.Return) and node.value is not None and any(ast.iter_child_nodes(node.value)):
        yield Replacement("stale", node.value, ast.Call(ast.Name("_stale"), [node.value], []))


def shared(node: ast.stmt) -> Iterator[Replacement]:
    """An object that `__init__` makes for each instance is the same for all of them."""
    match node:
        case ast.Assign(targets=[ast.Attribute()], value=value) | ast.AnnAssign(target=ast.Attribute(), value=value):
            if isinstance(value, ast.List | ast.Dict | ast.Set | ast.Call):
                yield Replacement("shared", value, ast.Call(ast.Name("_shared"), [value], []))


def unhandled(node: ast.AST) -> Iterator[Replacement]:
    """An error is not caught."""
    if isinstance(node, ast.ExceptHandler) and node.type is not None:
        yield Replacement("unhandled", node.type, ast.Tuple([], ast.Load()))
    if isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Tuple):
        for index in range(len(node.type.elts)):
            yield Replacement("unhandled", node.type, _with(node.type, elts=_replaced(node.type.elts, index)))


def one_path(node: ast.AST, path: str) -> Iterator[Replacement]:
    """Where the expression `path` is true, a condition is the contrary, or a statement is not there."""
    where = ast.parse(path, mode="eval").body
    for test in _tests(node):
        yield Replacement("one-path", test, ast.IfExp(where, ast.UnaryOp(ast.Not(), test), test))
    if _can_be_deleted(node):
        yield Replacement("one-path", node, f"if not ({path}): {ast.unparse(node)}")


EXPRESSION: tuple[Callable[[ast.AST], Iterator[Replacement]], ...] = (
    *(compare, logic, constant, arithmetic),
    *(argument, element, field, waits),
)
"""Operators on expressions."""

STATEMENT: tuple[Callable[[ast.AST], Iterator[Replacement]], ...] = (
    *(conditions, delete, augmented, stale, unhandled, times),
)
"""Operators on statements, and on what has conditions."""


def _with(node: N, **changes: object) -> N:
    """The node with other children."""
    made = copy.copy(node)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def _replaced(items: list[N], index: int, *others: N) -> list[N]:
    """The list with `others` in the place of one of its items."""
    return [*items[:index], *others, *items[index + 1 :]]
