"""The messages: derived from the installed schema, byte-equal to generated code, and alone in their pool."""

from __future__ import annotations

import subprocess
import sys

import pytest
from google.protobuf import descriptor_pool
from hypothesis import given
from hypothesis import strategies as st

from ext_proc import headers, messages, schema

# One message of each kind with every corner that has its own encoding; built with foreign generated code and with ours.
_SAMPLES = """
def samples(m):
    names = m.HeaderMap(headers=[
        m.HeaderValue(key=":path", raw_value=b"/v1/completions"),
        m.HeaderValue(key="x-both", value="text", raw_value=b"\\xff\\x00"),
        m.HeaderValue(),
    ])
    struct = m.Struct()
    struct.update({"s": "x", "n": 1.5, "b": True, "none": None, "list": [1, {"deep": "y"}], "empty": {}})
    metadata = m.Metadata(filter_metadata={"envoy.lb": struct},
                          typed_filter_metadata={"t": m.Any(type_url="type.googleapis.com/x.Y", value=b"abc")})
    set_header = m.HeaderValueOption(header=m.HeaderValue(key="k", raw_value=b"v"), append=m.BoolValue(value=True),
                                     append_action=m.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD)
    mutation = m.HeaderMutation(set_headers=[set_header, m.HeaderValueOption()], remove_headers=["a", "b"])
    streamed = m.BodyMutation(streamed_response=m.StreamedBodyResponse(body=b"chunk", end_of_stream=True))
    common = m.CommonResponse(status=m.CommonResponse.CONTINUE_AND_REPLACE, header_mutation=mutation,
                              body_mutation=streamed, trailers=names, clear_route_cache=True)
    immediate = m.ImmediateResponse(status=m.HttpStatus(code=429), headers=mutation, body=b"no",
                                    grpc_status=m.GrpcStatus(status=8), details="shed")
    yield m.ProcessingRequest(request_headers=m.HttpHeaders(headers=names, end_of_stream=True),
                              metadata_context=metadata, attributes={"envoy.filters.http.ext_proc": struct},
                              observability_mode=True,
                              protocol_config=m.ProtocolConfiguration(request_body_mode=4, response_body_mode=4))
    yield m.ProcessingRequest(request_body=m.HttpBody(body=bytes(range(256)) * 300, end_of_stream=True))
    yield m.ProcessingRequest(response_trailers=m.HttpTrailers(trailers=names))
    yield m.ProcessingRequest(response_body=m.HttpBody())
    yield m.ProcessingResponse(request_headers=m.HeadersResponse(response=common), dynamic_metadata=struct,
                               mode_override=m.ProcessingMode(request_body_mode=m.ProcessingMode.BUFFERED),
                               override_message_timeout=m.Duration(seconds=1, nanos=5))
    yield m.ProcessingResponse(request_body=m.BodyResponse(response=common))
    yield m.ProcessingResponse(response_trailers=m.TrailersResponse(header_mutation=mutation))
    yield m.ProcessingResponse(immediate_response=immediate)
"""

_FOREIGN = """
import types
from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2
from envoy.type.v3 import http_status_pb2
from google.protobuf import any_pb2, duration_pb2, struct_pb2, wrappers_pb2
foreign = types.SimpleNamespace()
for module in (any_pb2, duration_pb2, struct_pb2, wrappers_pb2, base_pb2, processing_mode_pb2, http_status_pb2,
               external_processor_pb2):
    vars(foreign).update({name: item for name, item in vars(module).items() if not name.startswith("_")})
"""


def _python(program: str) -> str:
    """What `program` prints, run in its own interpreter: it fills the process-wide descriptor pool."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # envoy-data-plane's own, from pydantic
def test_committed_schema_is_the_installed_envoy_data_planes() -> None:
    derived = schema.derive()
    committed = schema.FileDescriptorSet.FromString(schema.SCHEMA.read_bytes())
    assert committed == derived, "run: python -m ext_proc.schema"
    assert schema.STUB.read_text(encoding="utf-8") == schema.stub(derived), "run: python -m ext_proc.schema"


def test_every_message_of_the_schema_is_exported_once() -> None:
    committed = schema.FileDescriptorSet.FromString(schema.SCHEMA.read_bytes())
    names = [(file.package, message.name) for file in committed.file for message in file.message_type]
    assert len({name for _, name in names}) == len(names), "two messages share a short name"
    for package, name in names:
        assert getattr(messages, name).DESCRIPTOR.full_name == f"{package}.{name}"


def test_field_11_is_the_streamed_immediate_response() -> None:
    field = messages.ProcessingResponse.DESCRIPTOR.fields_by_number[11]
    assert (field.name, field.message_type.name) == ("streamed_immediate_response", "StreamedImmediateResponse")


def test_messages_use_the_c_codec_and_a_pool_of_their_own() -> None:
    assert type(messages.ProcessingRequest.DESCRIPTOR).__module__ == "google._upb._message"
    assert messages.ProcessingRequest.DESCRIPTOR.file.pool is messages.POOL
    assert messages.Struct.DESCRIPTOR.file.pool is messages.POOL
    assert messages.POOL is not descriptor_pool.Default()


@pytest.mark.program
def test_bytes_equal_those_of_generated_code() -> None:
    out = _python(
        _SAMPLES + _FOREIGN + "from ext_proc import messages as ours\n"
        "for a, b in zip(samples(ours), samples(foreign), strict=True):\n"
        "    left, right = (x.SerializeToString(deterministic=True) for x in (a, b))\n"
        "    assert left == right, (a, b)\n"
        "    assert type(a).FromString(right) == a and type(b).FromString(left) == b\n"
        "print('equal')"
    )
    assert out == "equal\n"


@pytest.mark.program
@pytest.mark.parametrize("ours_first", [True, False])
def test_lives_beside_foreign_generated_code(ours_first: bool) -> None:
    ours = "import ext_proc.messages, conformance.pytest_plugin\n"
    both = ours + _FOREIGN if ours_first else _FOREIGN + ours
    assert _python(both + "print(foreign.ProcessingRequest is not ext_proc.messages.ProcessingRequest)") == "True\n"


@pytest.mark.program
def test_import_does_not_pull_in_the_generator() -> None:
    heavy = ("envoy_data_plane", "pydantic", "google.protobuf.descriptor_pb2")
    program = f"import sys, ext_proc.messages; print([name for name in {heavy} if name in sys.modules])"
    assert _python(program) == "[]\n"


@pytest.mark.parametrize(
    "raw",
    [b"\xff\xff\xff", b"\x12\x05ab", b"\x12", b"\x0a\x80", b"\x42\x05\x0a\x03\x0a\x01\xff"],
    ids=["garbage", "short", "no length", "open varint", "bad utf-8 key"],
)
def test_damaged_bytes_are_refused(raw: bytes) -> None:
    from google.protobuf.message import DecodeError

    with pytest.raises(DecodeError):
        messages.ProcessingRequest.FromString(raw)


def test_the_last_member_of_a_oneof_wins() -> None:
    one = messages.ProcessingResponse(request_headers=messages.HeadersResponse()).SerializeToString()
    two = messages.ProcessingResponse(request_body=messages.BodyResponse()).SerializeToString()
    assert messages.ProcessingResponse.FromString(one + two).WhichOneof("response") == "request_body"


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), _JSON, max_size=4))
def test_structs_survive_the_round_trip(tree: dict[str, object]) -> None:
    wire = headers.to_struct(tree).SerializeToString()
    assert headers.plain_struct(messages.Struct.FromString(wire)) == tree


def test_a_struct_reads_the_same_in_every_process() -> None:
    names = [f"namespace-{number}" for number in range(40)]
    read = headers.plain_struct(headers.to_struct({name: {"b": 1, "a": 2} for name in reversed(names)}))
    assert (list(read), {tuple(one) for one in read.values()}) == (sorted(names), {("a", "b")})


@given(st.lists(st.tuples(st.text().map(str.encode), st.binary())))
def test_header_pairs_survive_the_round_trip(pairs: list[tuple[bytes, bytes]]) -> None:
    wire = headers.header_map(pairs).SerializeToString()
    assert headers.pairs_of(messages.HeaderMap.FromString(wire)) == tuple(pairs)


def test_raw_value_is_read_before_value() -> None:
    assert headers.value_of(messages.HeaderValue(value="é")) == "é".encode()
    assert headers.value_of(messages.HeaderValue(value="a", raw_value=b"b")) == b"b"


def test_a_value_without_a_form_is_refused() -> None:
    with pytest.raises(TypeError, match="set has no form"):
        headers.to_value({1})
    assert headers.plain(messages.Value()) is None
