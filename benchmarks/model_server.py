"""Time a whole run of role model-server on one fake model server, started by the run, beside the goal of 30 s.

    python benchmarks/model_server.py [--engine vllm] [--generation 0.33.0]

The server queues beyond a few requests, so that the load of the run is short. The figure is for the process, imports
and report included.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 30.0
"""Seconds that a run may take."""

SERVER = """
import asyncio, sys
from fake_modelserver import Fleet, Latency, PodSpec, Serving

async def serve(port, engine, generation):
    serving = Serving(max_running=4, first_token=Latency(mean=0.02), between_tokens=Latency(mean=0.005))
    spec = PodSpec(name="s", address="127.0.0.1", ports=(port,), models=("small-model",), engine=engine,
                   generation=generation, page="real", serving=serving)
    async with Fleet() as fleet:
        await fleet.add(spec)
        await asyncio.sleep(600)

asyncio.run(serve(int(sys.argv[1]), sys.argv[2], sys.argv[3] or None))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--generation", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "server.py"
        program.write_text(SERVER)
        server = f"cmd:{sys.executable} {program} {{port}} {options.engine} '{options.generation}'"
        command = [sys.executable, "-m", "conformance", "run", "--quiet", "--protocol-version", "next"]
        command += ["--server", server, "--engine", options.engine, "-o", f"{folder}/report"]
        before, began = os.getloadavg()[0], time.perf_counter()
        ran = subprocess.run(command, check=False)
        took = time.perf_counter() - began
    print(f"a run of role model-server: {took:.1f} s (goal {LIMIT:.0f} s), load average {before:.1f} before it")
    return 0 if ran.returncode == 0 and took <= LIMIT else 1


if __name__ == "__main__":
    raise SystemExit(main())
