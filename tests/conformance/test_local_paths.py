"""Evidence may be published: it names no folder of the machine that made it."""

import pytest

from conformance.evidence.local_paths import without_folders


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("/usr/bin/env", "…/env"),
        ("--config=/tmp/a-b/c_d/reporter.yaml:10:2: no", "--config=…/reporter.yaml:10:2: no"),
        ("at '/usr/lib/x.py', line 3; (/usr/y.go:7)", "at '…/x.py', line 3; (…/y.go:7)"),
        ("GET /v1/chat/completions of http://127.0.0.1/usr/x", "GET /v1/chat/completions of http://127.0.0.1/usr/x"),
        ("k8s.io/usr/x and ../usr/x and /usr", "k8s.io/usr/x and ../usr/x and /usr"),
        (r"stack: f\n\t/usr/go/x.go:7\n", r"stack: f\n\t…/x.go:7\n"),  # in a log line that is JSON
        ("", ""),
    ],
)
def test_folders_of_this_machine_are_left_out_and_nothing_else(text: str, kept: str) -> None:
    assert without_folders(text) == kept
    assert without_folders(kept) == kept
