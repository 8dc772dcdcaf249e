"""The OpenAPI document of the control endpoint, made from its table of operations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

_Carry = TypeVar("_Carry")
_ERRORS = {"404": "no such pod, fault or pin", "409": "a pod of that name exists", "422": "what is wrong, and where"}


@dataclass(frozen=True, slots=True)
class Operation(Generic[_Carry]):
    """An operation: `carry_out` is described by the first line of its docstring; `query` says what is asked for."""

    method: str
    path: str
    carry_out: _Carry
    body: TypeAdapter[Any] | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    media: str = "application/json"


def document(operations: Sequence[Operation[Any]]) -> dict[str, Any]:
    """The document, version 3.1."""
    schemas: dict[str, Any] = {"Error": {"type": "object", "properties": {"error": {"type": "string"}}}}
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Control of a fleet of fake model servers", "version": "1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _described(operation: Operation[Any], schemas: dict[str, Any]) -> dict[str, Any]:
    about = (operation.carry_out.__doc__ or "").partition("\n")[0]
    named = [(name, "path", True, "") for name in re.findall(r"\{(\w+)\}", operation.path)]
    asked = [(name, "query", False, text) for name, text in operation.query.items()]
    content: dict[str, Any] = {} if operation.status == 204 else {"content": {operation.media: {}}}
    error = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    described: dict[str, Any] = {
        "operationId": operation.carry_out.__name__,
        "summary": about,
        "parameters": [
            {"name": name, "in": where, "required": required, "description": text, "schema": {"type": "string"}}
            for name, where, required, text in (*named, *asked)
        ],
        "responses": {
            str(operation.status): {"description": about, **content},
            **{status: {"description": text, **error} for status, text in _ERRORS.items()},
        },
    }
    if operation.body is not None:
        schema = operation.body.json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(schema.pop("$defs", {}))
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return described
