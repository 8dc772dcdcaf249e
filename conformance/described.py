"""Dataclasses that stand in the files of people: their JSON Schema has the texts below the fields as descriptions.

These are read from the source when a schema is made, and not whenever a file is validated, as pydantic does with
`use_attribute_docstrings`: that takes its time in each run, and two threads that do so at a time break Python 3.11
(https://github.com/python/cpython/issues/106905).
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from typing import Any, ClassVar

from pydantic import ConfigDict, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel

from conformance.strict_yaml import FileModel


class Described:
    """Base of such a dataclass."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = FileModel.model_config

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        for name, text in field_texts(cls).items():
            for known in {name, to_camel(name)} & properties.keys():
                properties[known]["description"] = text
        return schema


def field_texts(cls: type) -> dict[str, str]:
    """The texts that stand below the fields of a class."""
    (statement,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(statement, ast.ClassDef), "it is the source of a class"
    texts = {}
    for pair in itertools.pairwise(statement.body):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = inspect.cleandoc(text)
    return texts
