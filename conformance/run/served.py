"""A request that arrived at a fake model server, as the record has it."""

from __future__ import annotations

from ext_proc.record import Headers, UpstreamRequest, UpstreamResponse
from fake_modelserver import Served


def attempt(
    served: Served,
    exchange: str | None,
    number: int,
    *,
    without: bytes = b"",
    trailers: Headers = (),
    cut: bool = False,
    delay: float = 0.0,
) -> tuple[UpstreamRequest, UpstreamResponse]:
    """Attempt `number` of an exchange and how it is answered, which is decided when it arrives.

    The header `without`, in lower case, is left out; `trailers` are those of the response. One that is `cut` is a reset
    with all that came before it; `delay` seconds pass before it is answered.
    """
    pseudo = ((b":method", served.method.encode()), (b":path", served.path.encode("latin-1")))
    lower = tuple((name.lower(), value) for name, value in served.headers if name.lower() != without)
    answer = served.answer_body
    request = UpstreamRequest(
        exchange=exchange,
        attempt=number,
        endpoint=served.endpoint,
        headers=(*pseudo, *lower),
        body=served.body,
        trailers=served.trailers,
        size=served.body_size,
    )
    answered = served.status is not None
    response = UpstreamResponse(
        exchange=exchange,
        attempt=number,
        endpoint=served.endpoint,
        outcome="response" if answered and not cut else "reset",
        status=served.status,
        headers=tuple((name.lower(), value) for name, value in served.answer_headers) if answered else (),
        body=(answer or b"") if answered else b"",
        trailers=trailers if answered else (),
        size=None if answer is None or not answered else len(answer),
        delay=delay,
    )
    return request, response
