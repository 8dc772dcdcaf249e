"""Files of evidence, packed by gzip or xz: what is read is what was packed, and what is damaged or a trap says so."""

from __future__ import annotations

import gzip
import lzma
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.cli import call
from conformance.evidence.packing import PACKING_ERRORS, unpacked

PACKERS = {"gzip": gzip.compress, "xz": lzma.compress}


def _read(path):
    with unpacked(path) as file:
        return file.read()


@pytest.mark.parametrize("packer", PACKERS)
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), size=st.integers(0, 300_000), limit=st.integers(1, 10**6))
def test_unpacking_restores_the_bytes(packer, tmp_path, seed, size, limit):
    whole = random.Random(seed).randbytes(size) * 20
    path = tmp_path / "packed"
    path.write_bytes(PACKERS[packer](whole))
    with unpacked(path) as file:
        lines = b"".join(iter(lambda: file.readline(limit), b""))
    assert lines == whole


@pytest.mark.parametrize("packer", PACKERS)
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(share=st.floats(0.05, 0.999), flipped=st.booleans())
def test_truncated_or_damaged_files_are_errors(packer, tmp_path, share, flipped):
    packed = bytearray(PACKERS[packer](random.Random(1).randbytes(2000)))
    place = max(20, int(len(packed) * share))  # behind the headers, which say little that is checked
    if flipped:
        packed[place] ^= 0x10
    else:
        del packed[place:]
    path = tmp_path / "packed"
    path.write_bytes(packed)
    with pytest.raises(PACKING_ERRORS):
        _read(path)


def test_bytes_behind_the_end_of_xz_are_an_error(tmp_path):
    path = tmp_path / "packed"
    for behind in (b"\0" * 4, lzma.compress(b"more")):
        path.write_bytes(lzma.compress(b"evidence") + behind)
        with pytest.raises(lzma.LZMAError, match="after the end"):
            _read(path)


def test_a_file_that_asks_for_gigabytes_of_memory_is_refused(tmp_path, capsys):
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 30}]
    path = tmp_path / "evidence.ndjson.xz"
    path.write_bytes(lzma.compress(b"{}\n", filters=filters))
    assert call(["judge", str(path)]) == 2
    assert "emory usage limit" in capsys.readouterr().err
