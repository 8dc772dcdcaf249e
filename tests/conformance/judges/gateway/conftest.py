"""`gateway(script, …)`: what the judges say in role data-plane; `relayed(script, …)`: a request as a right gateway
relays it, told by what differs."""

from __future__ import annotations

from typing import Any

import pytest
from scripted import BODY, Script, ScriptedExchange, echo, headers_answer

from conformance.evidence.episode import GatewayFacts

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"


@pytest.fixture
def gateway(ask):
    def gateway(script: Script, version: str = "1.0.0", *, expectations: Any = None, **claims: Any):
        context = {"role": "data-plane", "gateway": GatewayFacts(**{"follows": "either"} | claims), "requirements": ()}
        return ask(script, version, expectations=expectations or {}, **context)

    return gateway


@pytest.fixture
def script() -> Script:
    return Script(pool={"a": A, "b": B, "c": C})


@pytest.fixture
def relayed(script):
    def relayed(
        pick: Any = A,
        to: tuple[Any, ...] = (A,),
        *,
        served: Any = None,
        status: int = 200,
        answer: Any = None,
        script: Script = script,
        **opened: Any,
    ) -> ScriptedExchange:
        """`to`: the endpoints tried; all but the last answer 503, unless one is (endpoint, status or outcome)."""
        one = script.exchange(**opened).request(BODY)
        one.answers(answer if answer is not None else headers_answer(pick), *echo(BODY))
        last = None
        for number, attempt in enumerate(to):
            endpoint, how = attempt if isinstance(attempt, tuple) else (attempt, 503 if number < len(to) - 1 else 200)
            last = endpoint
            if isinstance(how, str):
                one.upstream(endpoint, outcome=how, body=BODY)
            else:
                one.upstream(endpoint, how, body=BODY)
        if to:
            one.response_headers(status=status, served=last if served is None else served)
            one.answers(headers_answer(side="response")).body(b"{}", side="response").answers(
                *echo(b"{}", side="response")
            )
            return one.client(status, b"{}").reset()
        return one.client(503 if status == 200 else status).reset()

    return relayed
