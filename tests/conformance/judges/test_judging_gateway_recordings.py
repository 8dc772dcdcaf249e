"""Role data-plane: recordings of real Envoy are never accused; changed in a way that breaks a rule, they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from google.protobuf import text_format
from scripted import NAMESPACE, SUBSET_NAMESPACE, Script

from conformance.verdict import Verdict
from ext_proc.messages import ProcessingRequest, ProcessingResponse
from ext_proc.protocol import SERVED, SUBSET
from ext_proc.record import Author

RECORDINGS = sorted((Path(__file__).parents[2] / "fake_proxy" / "recordings").glob("*.txtpb"))
VERSIONS = ["0.2.0", "0.4.0", "1.0.0", "next"]


def messages(path: Path) -> list[tuple[Author, bytes]]:
    found = []
    for block in re.split(r"(?m)^### ", path.read_text())[1:]:
        head, _, rest = block.partition("\n")
        if " recv " in head:
            wire = rest.partition("\n")[0].removeprefix("# wire: ")
            found.append((Author.DATA_PLANE, bytes.fromhex(wire)))
        elif " send " in head:
            found.append((Author.EPP, text_format.Parse(rest, ProcessingResponse()).SerializeToString()))
    return found


def heard(path: Path, change=lambda message, first: message) -> Script:
    """The recording as a tap heard it; `change` is made to each of Envoy's messages."""
    script = Script()
    one = script.exchange(opened=False)
    for number, (author, raw) in enumerate(messages(path)):
        if author is Author.EPP:
            one.raw(raw, author)
        else:
            one.raw(change(ProcessingRequest.FromString(raw), number == 0).SerializeToString(), author)
    one.reset()
    return script


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_real_envoy_is_not_accused(ask, path: Path) -> None:
    script = heard(path)
    for version in VERSIONS:
        verdicts = ask(script, version, role="data-plane")
        assert verdicts.of(Verdict.FAIL, Verdict.WARN) == set()
        assert verdicts["DP-EXTP-01"] is Verdict.PASS


def test_there_are_recordings() -> None:
    assert len(RECORDINGS) > 20


def upper(message, first):
    for one in message.request_headers.headers.headers:
        one.key = one.key.upper()
    return message


def configured(message, first):
    message.protocol_config.request_body_mode = 1
    return message


def odd_report(message, first):
    if message.HasField("response_headers"):
        message.metadata_context.filter_metadata[NAMESPACE].fields[SERVED].number_value = 8000
    return message


def odd_hint(message, first):
    message.metadata_context.filter_metadata[SUBSET_NAMESPACE].fields[SUBSET].string_value = "127.0.0.1:1"
    return message


def early_response(message, first):
    if first:
        headers = message.request_headers.headers
        message.response_headers.headers.CopyFrom(headers)
    return message


@pytest.mark.parametrize("path", [path for path in RECORDINGS if "post" in path.stem], ids=lambda path: path.stem)
@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (upper, "DP-EXTP-01"),
        (configured, "DP-EXTP-01"),
        (early_response, "DP-EXTP-01"),
        (odd_report, "DP-SRVD-01"),
        (odd_hint, "DP-SUB-01"),
    ],
)
def test_what_is_changed_in_them_is_seen(ask, path: Path, change, broken: str) -> None:
    verdicts = ask(heard(path, change), role="data-plane")
    assert verdicts.failed == {broken}
