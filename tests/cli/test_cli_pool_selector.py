"""A pool that selects by other labels: an EPP that follows passes, one that keeps to the first labels fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

EPP = Path(__file__).parents[1] / "targets" / "kubernetes_epp.py"


@pytest.mark.parametrize("keeps", [False, True])
def test_the_selector_is_followed(cli, tmp_path: Path, keeps: bool) -> None:
    profile = {
        "start": {
            "command": [sys.executable, str(EPP), "--listen", "127.0.0.1:{port}", "--log-level", "error"],
            "env": {"KUBECONFIG": "{kubeconfig}", "ENDPOINTS": str(tmp_path / "endpoints")}
            | ({"KEEPS_ITS_SELECTOR": "yes"} if keeps else {}),
        },
        "discovery": {"kubernetes": {}},
        "timeouts": {"convergence": 1},
    }
    (tmp_path / "epp.yaml").write_text(json.dumps(profile))
    one = ("--scenario", "pool.selector-changed", "--body-mode", "full-duplex")
    ran = cli("run", "--profile", tmp_path / "epp.yaml", *one, "-o", tmp_path / "r")
    assert ran.code == (1 if keeps else 4), ran.out + ran.err  # one scenario says nothing of the others
    assert ("scenarios    1 pass" in ran.out) != keeps, ran.out
    assert ("EPP-DEST-06" in ran.out) == keeps, ran.out
    assert cli("report", "verify", tmp_path / "r").code == 0
