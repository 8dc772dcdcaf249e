"""Faults of the request attribute reporter's configuration."""
# ruff: noqa: ARG002  (overrides have the arguments of what they override)

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from reference_epp.faults.reporter import reporter_fault
from reference_epp.reporter.attributes import ExpressionError, Program, Reporter, compile_expression
from reference_epp.reporter.config import ConfigError, ConfigReader, Fields


@reporter_fault(
    "reporter-takes-the-first-attribute",
    breaks="RAR-CFG-01",
    why="Of several attributes in one plugin the first is used, and the others are ignored.",
)
class TakesTheFirstAttribute(ConfigReader):
    def only(self, attributes: list[yaml.Node], node: yaml.Node) -> yaml.Node:
        return super().only(attributes[:1], node)


class FillsIn(ConfigReader):
    """Gives a required field a default."""

    what: str
    field: str
    default: str

    def mapping(self, node: yaml.Node, what: str, known: tuple[str, ...], required: tuple[str, ...]) -> Fields:
        needed = tuple(name for name in required if what != self.what or name != self.field)
        fields = super().mapping(node, what, known, needed)
        if what == self.what and self.field not in fields:
            made = yaml.ScalarNode("tag:yaml.org,2002:str", self.default, node.start_mark, node.end_mark)
            return {**fields, self.field: (node, made)}
        return fields


@reporter_fault(
    "reporter-names-the-nameless",
    breaks="RAR-CFG-02",
    why="An attribute without key.name is reported under a name that nothing says.",
)
class NamesTheNameless(FillsIn):
    what, field, default = "key", "name", "attribute"


@reporter_fault(
    "reporter-without-an-expression",
    breaks="RAR-CFG-03",
    why="An attribute without an expression is taken for the total of tokens.",
)
class WithoutAnExpression(FillsIn):
    what, field, default = "an attribute", "expression", "usage.total_tokens"


@reporter_fault(
    "reporter-in-a-namespace-of-its-name",
    breaks="RAR-CFG-04",
    why="Without a namespace the value is reported under `request-attribute-reporter`.",
    also_breaks={"RAR-OUT-01": "it is not where it is looked for"},
)
class InANamespaceOfItsName(ConfigReader):
    namespace = "request-attribute-reporter"


@reporter_fault(
    "reporter-folds-case",
    breaks="RAR-OUT-01",
    why="Namespace and name of a value are written in small letters, as names of headers are.",
)
class FoldsCase(Reporter):
    def report(self, usage: Mapping[str, Any] | None) -> Iterator[tuple[str, str, int]]:
        for namespace, name, value in super().report(usage):
            yield namespace.lower(), name.lower(), value


class Fails:
    """An expression that always fails."""

    def execute(self, context: dict[str, Any]) -> Any:
        """Raise an error."""
        raise ValueError("not compiled")


@reporter_fault(
    "reporter-starts-with-wrong-cel",
    breaks="RAR-CFG-05",
    why="An expression that can't be compiled is found out only when it is evaluated.",
)
class StartsWithWrongCel(ConfigReader):
    def compile(self, text: str) -> Program:
        try:
            return compile_expression(text)
        except ExpressionError:
            return Fails()


@reporter_fault(
    "reporter-knows-any-variable-in-a-condition",
    breaks="RAR-CFG-05",
    why="Names of variables are looked at in the expression only; a condition with a wrong one never holds.",
)
class KnowsAnyVariableInACondition(ConfigReader):
    def expression(self, node: yaml.Node, name: str) -> Program:
        try:
            return super().expression(node, name)
        except ConfigError as problem:
            if name == "condition" and "there is no variable" in str(problem):
                return Fails()
            raise
