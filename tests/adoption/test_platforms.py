"""Machines that the suite does not run on say so."""

import sys

import pytest

from conformance import cli


def test_windows_is_refused_with_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "Windows is not supported" in capsys.readouterr().err
