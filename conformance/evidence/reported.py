"""The attributes that the suite has an EPP report (Request Attribute Reporter), and the configuration that says so.

Scenarios call them by their names here and state the number that must come, so that nothing evaluates CEL here. The
expressions avoid literals of numbers: whether counts are integers or doubles is then no matter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from conformance.described import Described
from ext_proc.protocol import DESTINATION_NAMESPACE

DEFAULT_NAMESPACE = DESTINATION_NAMESPACE
"""Where a value is reported whose attribute names no namespace."""

PLUGIN = "request-attribute-reporter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute(Described):
    """One attribute that an EPP is configured to report."""

    name: str
    """The key of the value."""
    expression: str
    """CEL that gives the value."""
    namespace: str | None = None
    """The namespace of dynamic metadata that has the key; default `envoy.lb`."""
    condition: str | None = None
    """CEL that says whether the value is reported."""

    @property
    def place(self) -> tuple[str, str]:
        """Namespace and key of the value."""
        return self.namespace or DEFAULT_NAMESPACE, self.name

    def computes_like(self, other: Attribute) -> bool:
        """Whether both have the same expression and condition, but for blanks."""
        return all(
            (getattr(self, name) or "").split() == (getattr(other, name) or "").split()
            for name in ("expression", "condition")
        )


def _own(name: str, expression: str, condition: str | None = None) -> Attribute:
    return Attribute(name=f"x-{name}", namespace=DEFAULT_NAMESPACE, expression=expression, condition=condition)


ATTRIBUTES: Mapping[str, Attribute] = {
    "cost": Attribute(
        name="x-gateway-inference-request-cost",
        expression="usage.prompt_tokens + usage.completion_tokens",
        condition="has(usage.prompt_tokens) && has(usage.completion_tokens)",
    ),
    "prompt": _own("prompt", "usage.prompt_tokens"),
    "completion": _own("completion", "usage.completion_tokens"),
    "total": _own("total", "usage.total_tokens"),
    "elsewhere": Attribute(name="Total_Tokens", namespace="EPP.conformance", expression="usage.total_tokens"),
    "quotient": _own("quotient", "usage.prompt_tokens / usage.completion_tokens"),
    "difference": _own("difference", "usage.completion_tokens - usage.prompt_tokens"),
    "text": _own("text", 'dyn("text")'),
    "missing": _own("missing", "usage.missing"),
    "if-total": _own("if-total", "usage.total_tokens", "has(usage.total_tokens)"),
    "if-long": _own("if-long", "usage.total_tokens", "usage.completion_tokens > usage.prompt_tokens"),
    "if-number": _own("if-number", "usage.total_tokens", "usage.prompt_tokens"),
    "if-missing": _own("if-missing", "usage.total_tokens", "usage.missing > usage.prompt_tokens"),
}
"""What the suite configures, by the names that scenarios use. The first is the example of the document. `elsewhere` has
capitals: keys of metadata are no names of headers."""


def configured(given: Sequence[Attribute]) -> Mapping[str, Attribute]:
    """The attributes that an EPP reports, by the names of `ATTRIBUTES`: all of them, unless its vendor says which."""
    if not given:
        return ATTRIBUTES
    return {name: own for name, one in ATTRIBUTES.items() for own in given if own.computes_like(one)}


def configuration(base: Mapping[str, Any], attributes: Sequence[Sequence[Any]] | None = None) -> str:
    """An `EndpointPickerConfig` in YAML: `base`, and a reporter for each of `attributes`, default the suite's own.

    Each item of `attributes` is the list that its reporter gets, right or wrong.
    """
    lists = [[_entry(one)] for one in ATTRIBUTES.values()] if attributes is None else attributes
    reporters = [
        {"name": f"reporter-{number}", "type": PLUGIN, "parameters": {"attributes": list(one)}}
        for number, one in enumerate(lists, 1)
    ]
    whole = {**base, "plugins": [*base.get("plugins", ()), *reporters]}
    return str(yaml.safe_dump(whole, sort_keys=False, allow_unicode=True))


def _entry(attribute: Attribute) -> dict[str, Any]:
    values = {name: value for name, value in dataclasses.asdict(attribute).items() if value is not None}
    key = {name: values.pop(name) for name in ("namespace", "name") if name in values}
    return {"key": key, **values}
