"""Episodes written by hand: message by message, without a proxy, an EPP or a network.

    script = Script(pool={"a": "10.0.0.1:8000", "b": "10.0.0.2:8000"})
    one = script.exchange(subset=["10.0.0.1:8000"])
    one.request(BODY).answers(headers_answer("10.0.0.1:8000"), *echo(BODY)).drained()
    episode = script.episode

Every call appends to one log, so exchanges can be interleaved. Messages of the data plane are as Envoy sends them;
those of the EPP are given as they are, also raw bytes.
"""

from scripted.answers import (
    AS_DESTINATION,
    NAMESPACE,
    body_answer,
    echo,
    headers_answer,
    immediate,
    option,
    pieces,
    streamed,
    trailers_answer,
    with_metadata,
)
from scripted.script import BODY, SUBSET_NAMESPACE, Script, ScriptedExchange, pod

__all__ = [
    "AS_DESTINATION",
    "BODY",
    "NAMESPACE",
    "SUBSET_NAMESPACE",
    "Script",
    "ScriptedExchange",
    "body_answer",
    "echo",
    "headers_answer",
    "immediate",
    "option",
    "pieces",
    "pod",
    "streamed",
    "trailers_answer",
    "with_metadata",
]
