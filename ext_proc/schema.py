"""The message schema, derived once from envoy-data-plane: `python -m ext_proc.schema` writes it again.

envoy-data-plane carries Envoy's current API as annotated dataclasses. Its own codec is slow, accepts truncated bytes
and rejects legal ones, so only its annotations are read here: field numbers, types, oneofs, maps. They become two files
that are kept in the repository, so that nothing at run time imports envoy-data-plane (0.6 s):

- `schema.binpb`, a serialised `google.protobuf.FileDescriptorSet`, one file per package, read by `ext_proc.messages`;
- `messages.pyi`, the types of `ext_proc.messages`.

Run it after an update of envoy-data-plane; a test fails as long as the files and the installed package differ.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

SCHEMA = Path(__file__).with_name("schema.binpb")
STUB = Path(__file__).with_name("messages.pyi")

_Field = FieldDescriptorProto
_TYPES = {name.removeprefix("TYPE_").lower(): number for name, number in _Field.Type.items()}


def derive() -> FileDescriptorSet:
    """The schema of everything reachable from the ext_proc and gRPC health messages, in dependency order.

    Raises `TypeError` if envoy-data-plane annotates a field in a way this module does not know.
    """
    from envoy_data_plane.envoy.service.ext_proc.v3 import ProcessingRequest, ProcessingResponse

    builder = _Builder()
    builder.message(ProcessingRequest)
    builder.message(ProcessingResponse)
    files = [*builder.finish(), _health()]
    return FileDescriptorSet(file=files)


def _health() -> FileDescriptorProto:
    """The gRPC health checking protocol's messages, which are not part of Envoy's API."""
    from grpc_health.v1 import health_pb2

    upstream = FileDescriptorProto()
    health_pb2.DESCRIPTOR.CopyToProto(upstream)
    wanted = ("HealthCheckRequest", "HealthCheckResponse")
    file = FileDescriptorProto(name="grpc.health.v1.proto", package=upstream.package, syntax="proto3")
    file.message_type.extend(message for message in upstream.message_type if message.name in wanted)
    return file


class _Builder:
    """Collects annotated classes and all they refer to into one file per package."""

    def __init__(self) -> None:
        from envoy_data_plane.message_pool import default_message_pool

        self._urls: dict[type, str] = default_message_pool.type_to_url
        self._packages = {
            cls.__module__: _package(url.rpartition("/")[2]) for cls, url in self._urls.items() if _package(url)
        }
        self._files: dict[str, FileDescriptorProto] = {}
        self._messages: dict[str, DescriptorProto] = {}
        self._enums: dict[str, type] = {}

    def message(self, cls: type) -> str:
        """Add `cls` and what it refers to; returns its full name."""
        full_name = self._urls[cls].rpartition("/")[2]
        if full_name in self._messages:
            return full_name
        package = _package(full_name)
        message = DescriptorProto(name=full_name[len(package) + 1 :])
        self._messages[full_name] = message
        hints = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            self._field(full_name, message, field, hints[field.name])
        self._file(package).message_type.append(message)
        # The wrapper copies on append; nested enums are added to the copy that the file owns.
        self._messages[full_name] = self._file(package).message_type[-1]
        return full_name

    def finish(self) -> list[FileDescriptorProto]:
        """The files, sorted so that each comes after those it depends on, and stable from run to run."""
        for cls in sorted(self._enums.values(), key=lambda one: (one.__module__, one.__name__)):
            self._place_enum(cls)
        for package, file in self._files.items():
            file.message_type.sort(key=lambda one: one.name)
            file.dependency.extend(sorted(f"{other}.proto" for other in self._needs(package)))
        done: list[str] = []
        while len(done) < len(self._files):
            done.append(min(p for p in self._files if p not in done and self._needs(p) <= set(done)))
        return [self._files[package] for package in done]

    def _file(self, package: str) -> FileDescriptorProto:
        return self._files.setdefault(
            package, FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
        )

    def _needs(self, package: str) -> set[str]:
        names = (f.type_name[1:] for message in self._files[package].message_type for f in _all_fields(message))
        return {_package(name) for name in names if name} - {package}

    def _field(self, owner: str, message: DescriptorProto, field: dataclasses.Field[Any], hint: Any) -> None:
        meta = field.metadata["betterproto"]
        added = message.field.add(name=field.name, number=meta.number, label=_Field.LABEL_OPTIONAL)
        if meta.proto_type == "map":
            entry = message.nested_type.add(name=_camel(field.name) + "Entry")
            entry.options.map_entry = True
            for name, part, part_hint in zip(("key", "value"), meta.map_meta, typing.get_args(hint), strict=True):
                inner = entry.field.add(name=name, number=part.number, label=_Field.LABEL_OPTIONAL)
                self._type(inner, part, part_hint)
            added.type, added.type_name = _Field.TYPE_MESSAGE, f".{owner}.{entry.name}"
            added.label = _Field.LABEL_REPEATED
            return
        self._type(added, meta, hint)
        if meta.repeated:
            added.label = _Field.LABEL_REPEATED
        elif meta.group:
            groups = [oneof.name for oneof in message.oneof_decl]
            if meta.group not in groups:
                message.oneof_decl.add(name=meta.group)
                groups.append(meta.group)
            added.oneof_index = groups.index(meta.group)
        elif meta.optional and added.type != _Field.TYPE_MESSAGE:
            raise TypeError(f"{owner}.{field.name}: optional scalars are not supported by the schema generator yet")

    def _type(self, field: FieldDescriptorProto, meta: Any, hint: Any) -> None:
        try:
            field.type = _TYPES[meta.proto_type]
        except KeyError:
            raise TypeError(f"field {field.name}: unknown annotation {meta!r}") from None
        if field.type == _Field.TYPE_MESSAGE:
            field.type_name = "." + self.message(meta.unwrap() if meta.unwrap else _class(hint))
        elif field.type == _Field.TYPE_ENUM:
            cls = _class(hint)
            field.type_name = f".{self._enum_name(cls)}"
            self._enums[field.type_name[1:]] = cls

    def _enum_name(self, cls: type) -> str:
        """The full name of an enum: annotations flatten `Outer.Inner` to `OuterInner`, this undoes it."""
        package = self._packages[cls.__module__]
        outer = [
            name
            for url in self._urls.values()
            for name in [url.rpartition("/")[2]]
            if _package(name) == package and f"{package}.{cls.__name__}".startswith(name)
        ]
        if not outer:
            return f"{package}.{cls.__name__}"
        longest = max(outer, key=len)
        return f"{longest}.{cls.__name__[len(longest) - len(package) - 1 :]}"

    def _place_enum(self, cls: Any) -> None:
        full_name = self._enum_name(cls)
        owner, _, name = full_name.rpartition(".")
        enum = EnumDescriptorProto(name=name)
        for member in cls:
            enum.value.add(name=member.proto_name or member.name, number=int(member))
        if owner in self._messages:
            self._messages[owner].enum_type.append(enum)
        else:
            self._file(owner).enum_type.append(enum)


def _package(full_name: str) -> str:
    """The leading lower-case parts of a full name: packages are lower case, messages are not."""
    parts = full_name.split(".")
    return ".".join(parts[: next(i for i, part in enumerate(parts) if part[:1].isupper())])


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _class(hint: Any) -> type:
    """The class in `X`, `X | None` or `list[X]`."""
    if isinstance(hint, type) and not isinstance(hint, types.GenericAlias):
        return hint
    return next(_class(one) for one in typing.get_args(hint) if one is not types.NoneType)


def _all_fields(message: DescriptorProto) -> Iterator[FieldDescriptorProto]:
    yield from message.field
    for nested in message.nested_type:
        yield from _all_fields(nested)


# -- the stub ----------------------------------------------------------------------------------------------------------

_HEAD = '''\
"""Types of `ext_proc.messages`. Generated by `python -m ext_proc.schema`; do not edit."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final, Literal

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal import containers, well_known_types
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message

# fmt: off

POOL: Final[DescriptorPool]
'''

_SCALARS = {
    _Field.TYPE_BOOL: "bool",
    _Field.TYPE_BYTES: "bytes",
    _Field.TYPE_STRING: "str",
    _Field.TYPE_DOUBLE: "float",
    _Field.TYPE_FLOAT: "float",
}
_MIXINS = {"Any", "Duration", "Struct", "ListValue"}


def stub(schema: FileDescriptorSet) -> str:
    """The text of `messages.pyi` for `schema`: one class per message, with keyword-only constructors."""
    maps = {
        f".{file.package}.{message.name}.{nested.name}": nested
        for file in schema.file
        for message in file.message_type
        for nested in message.nested_type
    }
    lines = [_HEAD]
    for file in schema.file:
        for enum in file.enum_type:
            lines.append(f"{enum.name}: Final[EnumTypeWrapper]")
            lines += [f"{value.name}: Final = {value.number}" for value in enum.value if enum.name == "NullValue"]
            lines.append("")
        for message in file.message_type:
            lines += _stub_class(message, maps, file.package == "google.protobuf")
    return "\n".join(lines).rstrip() + "\n"


def _stub_class(message: DescriptorProto, maps: dict[str, DescriptorProto], well_known: bool) -> list[str]:
    mixin = f", well_known_types.{message.name}" if well_known and message.name in _MIXINS else ""
    lines = [f"class {message.name}(Message{mixin}):"]
    for enum in message.enum_type:
        lines.append(f"    {enum.name}: ClassVar[EnumTypeWrapper]")
        lines += [f"    {value.name}: Final = {value.number}" for value in enum.value]
    arguments, attributes = [], []
    for field in message.field:
        taken, given = _stub_types(field, maps)
        settable = field.label != _Field.LABEL_REPEATED and field.type != _Field.TYPE_MESSAGE
        attributes += (
            [f"    {field.name}: {given}"]
            if settable
            else ["    @property", f"    def {field.name}(self) -> {given}: ..."]
        )
        arguments.append(f"{field.name}: {taken} | None = None")
    lines += attributes
    signature = f", *, {', '.join(arguments)}" if arguments else ""
    lines.append(f"    def __init__(self{signature}) -> None: ...")
    singular = [f.name for f in message.field if f.label != _Field.LABEL_REPEATED]
    presence = [f.name for f in message.field if f.type == _Field.TYPE_MESSAGE or f.HasField("oneof_index")]
    presence = [name for name in presence if name in singular] + [oneof.name for oneof in message.oneof_decl]
    if presence:
        lines.append(f"    def HasField(self, field_name: {_literal(presence)}) -> bool: ...")
    if message.field:
        names = [f.name for f in message.field] + [oneof.name for oneof in message.oneof_decl]
        lines.append(f"    def ClearField(self, field_name: {_literal(names)}) -> None: ...")
    for index, oneof in enumerate(message.oneof_decl):
        members = [f.name for f in message.field if f.HasField("oneof_index") and f.oneof_index == index]
        lines.append(
            f"    def WhichOneof(self, oneof_group: {_literal([oneof.name])}) -> {_literal(members)} | None: ..."
        )
    return [*lines, ""]


def _stub_types(field: FieldDescriptorProto, maps: dict[str, DescriptorProto]) -> tuple[str, str]:
    """(what the constructor takes, what the attribute gives)."""
    if field.type_name in maps:
        (_, key), (_, value) = (_stub_types(part, maps) for part in maps[field.type_name].field)
        kind = "MessageMap" if maps[field.type_name].field[1].type == _Field.TYPE_MESSAGE else "ScalarMap"
        return f"Mapping[{key}, {value}]", f"containers.{kind}[{key}, {value}]"
    if field.type == _Field.TYPE_MESSAGE:
        name = field.type_name.rpartition(".")[2]
        repeated = f"containers.RepeatedCompositeFieldContainer[{name}]"
    else:
        name = _SCALARS.get(field.type, "int")
        repeated = f"containers.RepeatedScalarFieldContainer[{name}]"
    return (f"Iterable[{name}]", repeated) if field.label == _Field.LABEL_REPEATED else (name, name)


def _literal(names: list[str]) -> str:
    return f"Literal[{', '.join(repr(name) for name in names)}]".replace("'", '"')


def main() -> None:
    """Write `schema.binpb` and `messages.pyi` beside this module."""
    schema = derive()
    SCHEMA.write_bytes(schema.SerializeToString(deterministic=True))
    STUB.write_text(stub(schema), encoding="utf-8")
    print(f"{SCHEMA.name}: {sum(len(file.message_type) for file in schema.file)} messages")  # noqa: T201


if __name__ == "__main__":
    main()
