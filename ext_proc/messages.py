"""The messages of ext_proc and gRPC health, as protobuf classes: `ProcessingRequest`, `Struct`, `HeaderMap`, …

Every message in `schema.binpb` is an attribute of this module under its short name; `messages.pyi` lists them. They
are ordinary protobuf messages on protobuf's C codec, with upstream's full names, in their own descriptor pool
(`POOL`): a program that also imports generated code for these names (its own, or xds-protos') is not disturbed, nor
are we.

The price is that these classes and foreign ones for the same message are different types: pass bytes between them.
"""

from __future__ import annotations

from pathlib import Path

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass


def _files(descriptor_set: bytes) -> list[bytes]:
    """The serialised files in a FileDescriptorSet: `repeated FileDescriptorProto file = 1`, and nothing else.

    Taken apart by hand so that start-up does not import protobuf's descriptor messages.
    """
    files, at = [], 0
    while at < len(descriptor_set):
        at += 1  # the tag: field 1, length-delimited
        size = shift = 0
        while True:
            byte = descriptor_set[at]
            size |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                break
        files.append(descriptor_set[at : at + size])
        at += size
    return files


POOL = DescriptorPool()
for _raw in _files(Path(__file__).with_name("schema.binpb").read_bytes()):
    _file = POOL.AddSerializedFile(_raw)
    for _name, _message in _file.message_types_by_name.items():
        globals()[_name] = GetMessageClass(_message)
    for _name, _enum in _file.enum_types_by_name.items():
        globals()[_name] = EnumTypeWrapper(_enum)
        if _name == "NullValue":
            globals()["NULL_VALUE"] = 0
