"""Read the configuration: the field's `EndpointPickerConfig` in YAML, of which this EPP has one type of plugin.

Whatever is wrong raises `ConfigError`, whose message begins with `file:line:column`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import yaml

from reference_epp.names import DESTINATION, FALLBACK, METADATA_NAMESPACE, SERVED, SUBSET
from reference_epp.reporter.attributes import Attribute, ExpressionError, Program, compile_expression

API_VERSIONS = (
    "config.apix.gateway-api-inference-extension.sigs.k8s.io/v1alpha1",
    "inference.networking.x-k8s.io/v1alpha1",
)
KIND = "EndpointPickerConfig"
REPORTER = "request-attribute-reporter"

RESERVED = (DESTINATION, FALLBACK, SUBSET, SERVED)
"""Names that the protocol gives a meaning: a report must not change the destination."""

Fields = Mapping[str, tuple[yaml.Node, yaml.Node]]
"""The members of a mapping: the nodes of name and value."""


class ConfigError(Exception):
    """The configuration can't be used; the message says where, what and what to do."""


class ConfigReader:
    """Reads one configuration. `source` is what errors call it: a path, or the option that holds the text."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._text = ""

    def read(self, text: str) -> tuple[Attribute, ...]:
        """The attributes that the configuration has reported. Raises `ConfigError`."""
        self._text = text
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as problem:
            mark = problem.problem_mark or problem.context_mark
            place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            raise self.error(place, f"not YAML: {problem.problem or problem.context}") from None
        except (yaml.YAMLError, RecursionError) as problem:
            raise self.error((1, 1), f"not YAML: {str(problem).partition(chr(10))[0] or 'nested too deeply'}") from None
        if root is None:
            raise self.error((1, 1), f"is empty; an {KIND} is needed")
        fields = self.mapping(root, "the configuration", ("apiVersion", "kind", "plugins"), ())
        self.one_of(fields, root, "apiVersion", API_VERSIONS)
        self.one_of(fields, root, "kind", (KIND,))
        return self.plugins(fields["plugins"][1] if "plugins" in fields else None)

    def plugins(self, node: yaml.Node | None) -> tuple[Attribute, ...]:
        """The attributes of all plugins; names and reported keys must differ."""
        names: set[str] = set()
        attributes: dict[tuple[str, str], Attribute] = {}
        for item in self.items(node, "plugins") if node is not None else ():
            fields = self.mapping(item, "a plugin", ("name", "type", "parameters"), ("type",))
            kind = self.text(fields["type"][1], "type")
            if kind != REPORTER:
                self.fail(fields["type"][1], f"there is no plugin type {kind!r} in this EPP, only {REPORTER!r}")
            name = self.text(fields["name"][1], "name") if "name" in fields else kind
            if name in names:
                self.fail(item, f"a second plugin is named {name!r}; give each a name")
            names.add(name)
            attribute, where = self.parameters(item, fields)
            key = (attribute.namespace, attribute.name)
            if key in attributes:
                self.fail(where, f"another plugin reports {key[1]!r} in {key[0]!r} already")
            attributes[key] = attribute
        return tuple(attributes.values())

    def parameters(self, plugin: yaml.Node, fields: Fields) -> tuple[Attribute, yaml.Node]:
        """The attribute of a plugin and the node of its key."""
        if "parameters" not in fields:
            self.fail(plugin, "parameters are missing; they hold `attributes`")
        parameters = self.mapping(fields["parameters"][1], "parameters", ("attributes",), ("attributes",))
        node = parameters["attributes"][1]
        return self.attribute(self.only(self.items(node, "attributes"), node))

    def only(self, attributes: list[yaml.Node], node: yaml.Node) -> yaml.Node:
        """The one entry that there must be."""
        if len(attributes) != 1:
            self.fail(node, f"attributes must have exactly one entry, not {len(attributes)}; use a plugin for each")
        return attributes[0]

    def attribute(self, node: yaml.Node) -> tuple[Attribute, yaml.Node]:
        """An entry of `attributes` and the node of its key."""
        known = ("key", "expression", "condition")
        fields = self.mapping(node, "an attribute", known, ("key", *self.required))
        key = self.mapping(fields["key"][1], "key", ("namespace", "name"), ("name",))
        name = self.text(key["name"][1], "name")
        if name in RESERVED:
            self.fail(key["name"][1], f"{name!r} has a meaning in the protocol and can't be reported")
        attribute = Attribute(
            namespace=self.text(key["namespace"][1], "namespace") if "namespace" in key else self.namespace,
            name=name,
            expression=self.expression(fields["expression"][1], "expression"),
            condition=self.expression(fields["condition"][1], "condition") if "condition" in fields else None,
        )
        return attribute, fields["key"][1]

    namespace = METADATA_NAMESPACE
    """Where values are reported that name no namespace."""

    required: tuple[str, ...] = ("expression",)
    """Fields that an attribute must have besides its key."""

    def expression(self, node: yaml.Node, name: str) -> Program:
        """A compiled expression."""
        text = self.text(node, name)
        try:
            return self.compile(text)
        except ExpressionError as problem:
            place = self.inside(node, problem.line, problem.column)
            raise self.error(place, f"{name} is not valid CEL: {problem}") from None

    def compile(self, text: str) -> Program:
        """Compile CEL. Raises `ExpressionError`."""
        return compile_expression(text)

    # -- YAML's nodes

    def mapping(self, node: yaml.Node, what: str, known: tuple[str, ...], required: tuple[str, ...]) -> Fields:
        """The members of a mapping that has only `known` names, each once, and all `required` ones."""
        if not isinstance(node, yaml.MappingNode):
            self.fail(node, f"{what} must be a mapping with {', '.join(known)}")
        fields: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            if name not in known:
                self.fail(key, f"{what} has no field {name!r}; there are {', '.join(known)}")
            if name in fields:
                self.fail(key, f"{what} has {name} twice")
            fields[name] = (key, value)
        for name in required:
            if name not in fields:
                self.fail(node, f"{what} needs the field {name!r}")
        return fields

    def items(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        """The items of a list."""
        if not isinstance(node, yaml.SequenceNode):
            self.fail(node, f"{what} must be a list")
        return list(node.value)

    def text(self, node: yaml.Node, what: str) -> str:
        """A string that is not empty."""
        if not isinstance(node, yaml.ScalarNode) or node.tag != "tag:yaml.org,2002:str":
            self.fail(node, f"{what} must be text; put it in quotes")
        value = str(node.value)
        if not value.strip():
            self.fail(node, f"{what} must not be empty")
        return value

    def one_of(self, fields: Fields, node: yaml.Node, name: str, allowed: tuple[str, ...]) -> None:
        """Demand that the field `name` is there with one of these values."""
        if name not in fields:
            self.fail(node, f"{name} is missing; write {name}: {allowed[0]}")
        if self.text(fields[name][1], name) not in allowed:
            self.fail(fields[name][1], f"{name} must be {' or '.join(allowed)}")

    def inside(self, node: yaml.Node, line: int, column: int) -> tuple[int, int]:
        """Where in the file line and column of a scalar's text are: exact unless it is folded or has escapes."""
        mark = node.start_mark
        match node.style if isinstance(node, yaml.ScalarNode) else None:
            case "|":
                lines = self._text.split("\n")[mark.line + 1 :]
                indent = next((len(one) - len(one.lstrip(" ")) for one in lines if one.strip()), 0)
                return mark.line + 1 + line, indent + column
            case "'" | '"' if line == 1:
                return mark.line + 1, mark.column + 1 + column
            case None if line == 1:
                return mark.line + 1, mark.column + column
            case _:
                return mark.line + 1, mark.column + 1

    def fail(self, node: yaml.Node, problem: str) -> NoReturn:
        """Raise the error about this node."""
        raise self.error((node.start_mark.line + 1, node.start_mark.column + 1), problem)

    def error(self, place: tuple[int, int], problem: str) -> ConfigError:
        """The error at line and column, both from 1."""
        return ConfigError(f"{self.source}:{place[0]}:{place[1]}: {problem}")


def read_config(
    file: Path | None, text: str | None, reader: type[ConfigReader] = ConfigReader
) -> tuple[Attribute, ...]:
    """The attributes that the file, or else the text, configures; none without either. Raises `ConfigError`."""
    if file is not None:
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise ConfigError(f"{file}:1:1: can't be read: {problem}") from None
        return reader(str(file)).read(text)
    return () if text is None else reader("--config-text").read(text)
