"""The reference EPP behind a minimal reader of the Kubernetes API: it polls pods and pool into a file.

The file is that of the environment's ENDPOINTS.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
import urllib.request
from pathlib import Path

ENDPOINTS = Path(os.environ.get("ENDPOINTS", "/tmp/endpoints"))
POOL = "/apis/inference.networking.k8s.io/v1/namespaces/default/inferencepools/pool"
PODS = "/api/v1/namespaces/default/pods"


def main() -> None:
    found = re.search(r"server: (\S+)", Path(os.environ["KUBECONFIG"]).read_text())
    assert found
    server = found[1].strip("\"'")
    write(server)
    threading.Thread(target=follow, args=(server,), daemon=True).start()
    sys.argv += [f"--endpoints-file={ENDPOINTS}"]
    from reference_epp.__main__ import main as serve

    serve()


def follow(server: str) -> None:
    while True:
        time.sleep(0.02)
        try:
            write(server)
        except OSError as problem:
            print(problem, flush=True)


def write(server: str) -> None:
    pool = get(server + POOL)["spec"]
    ports = [one["number"] for one in pool["targetPorts"]]
    labels = pool["selector"]["matchLabels"]
    addresses = [pod["status"]["podIP"] for pod in get(server + PODS)["items"] if ready(pod) and selected(pod, labels)]
    scratch = ENDPOINTS.with_suffix(".new")
    scratch.write_text("".join(f"{address}:{port}\n" for address in addresses for port in ports))
    scratch.replace(ENDPOINTS)


def ready(pod: dict) -> bool:
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def selected(pod: dict, labels: dict) -> bool:
    return labels.items() <= pod["metadata"].get("labels", {}).items()


def get(url: str) -> dict:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main()
