"""The reference EPP behind a reader of the Kubernetes API that watches pods, and lists objectives only if it is told.

`watching_epp.py PORT ENDPOINTS_FILE [objectives]`, with KUBECONFIG.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import threading
import urllib.request
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "targets" / "kubernetes_epp.py"
_spec = importlib.util.spec_from_file_location("kubernetes_epp", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
kubernetes_epp = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(kubernetes_epp)
OBJECTIVES = "/apis/inference.networking.x-k8s.io/v1alpha2/namespaces/default/inferenceobjectives"


def watch(server: str) -> None:
    with urllib.request.urlopen(f"{server}{kubernetes_epp.PODS}?watch=true") as answer:
        for _ in answer:
            pass


def main() -> None:
    port, endpoints, *told = sys.argv[1:]
    found = re.search(r"server: (\S+)", Path(os.environ["KUBECONFIG"]).read_text())
    assert found
    server = found[1].strip("\"'")
    threading.Thread(target=watch, args=(server,), daemon=True).start()
    if told:
        kubernetes_epp.get(server + OBJECTIVES)
    kubernetes_epp.ENDPOINTS = Path(endpoints)
    sys.argv[1:] = [f"--listen=127.0.0.1:{port}"]
    kubernetes_epp.main()


main()
