"""The commented profile of a model server that `profile init` writes."""

from __future__ import annotations

import json
from collections.abc import Sequence

from conformance.cli.implementation_text import implementation


def server_text(name: str, command: Sequence[str], image: str, url: str | None, engine: str, model: str | None) -> str:
    """The profile of a model server that `command` or a container starts, or that runs at `url`.

    Values are JSON, which YAML reads. Without `model` the server's own list of models says which is asked for.
    """
    lines = [
        "# A model server under test. `epp-conformance profile schema --role model-server` has every key.",
        "role: model-server",
        f"name: {json.dumps(name)}",
        *implementation(name),
    ]
    if command:
        lines += ["start:", "  # placeholders: {port} {binary} (--binary) {version} {workdir}", "  command:"]
        lines += [f"    - {json.dumps(word)}" for word in command]
    elif image:
        lines += [
            "start:",
            f"  image: {json.dumps(image)}",
            "  args: [] # of its entry point; placeholders: {port} {version}",
        ]
    else:
        lines += [f"url: {json.dumps(url)} # without /v1"]
    lines += [
        "# whose names its metrics have: vllm, sglang, trtllm-serve, triton-tensorrt-llm or other",
        f"engine: {json.dumps(engine)}",
        "metrics:",
        "  # url: /metrics # the page, where the engine has it elsewhere",
        "  names: {} # in the place of the engine's: queued, running, kvCache, blockSize, blocks, lora, prefixHits",
        "adapters: [] # LoRA adapters that are loaded, as a request names them",
        "# prefixCache: true # it reuses caches of prompts",
        "requests:",
        f"  model: {json.dumps(model)}" if model else "  # model: my-model # default: the first that /v1/models lists",
        "  headers: {} # sent with every request; secrets go to secretHeaders",
        "limits: {concurrency: 64, tokens: 512, promptWords: 2000} # of the load that fills its queue and its KV cache",
        "protocolVersions: [1.0.0] # what it claims; a claim that fails makes the exit code 1",
        "",
    ]
    return "\n".join(lines)
