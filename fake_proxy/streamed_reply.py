"""StreamedImmediateResponse: a reply of the EPP's own to the client, in pieces, as Envoy 1.40 takes it.

It is taken as the answer to the request's headers and nowhere else. More than headers is taken where bodies are sent in
full duplex or not at all.
"""

from __future__ import annotations

from ext_proc.messages import HeaderMap, HeaderMutation, HeaderValueOption, HttpHeaders, StreamedImmediateResponse
from fake_proxy.actions import HeaderList
from fake_proxy.answer_errors import RejectedError, SpuriousError
from fake_proxy.config import BodyMode, ProxyConfig
from fake_proxy.downstream import Downstream
from fake_proxy.header_map import RESPONSE, get, number
from fake_proxy.mutations import HeaderRules, apply_headers

DETAILS = "ext_proc_local_response"
"""Why the response is what it is."""

_WHOLE = (BodyMode.NONE, BodyMode.FULL_DUPLEX_STREAMED)


class StreamedReply:
    """The reply on one stream. Its parts go to `client`."""

    def __init__(self, client: Downstream, config: ProxyConfig) -> None:
        self._client = client
        self._mode = config.request_body_mode
        self._rules = HeaderRules(
            max_count=config.max_header_count, max_bytes=config.max_header_bytes, known=RESPONSE, any_status=True
        )
        self.begun = False
        """Whether the client has got its headers."""

    def take(self, part: StreamedImmediateResponse, *, due: bool) -> None:
        """Pass a part on; `due`: the headers of the request wait for their answer. Raises as `Direction` does."""
        kind = part.WhichOneof("response")
        if not self.begun and not due:
            raise SpuriousError
        if self.begun and kind in ("headers_response", None):
            raise SpuriousError
        match kind:
            case "headers_response":
                self._begin(part.headers_response)
            case None:
                raise SpuriousError("Invalid local response headers continue")
            case _ if not self.begun:
                what = "body" if kind == "body_response" else "trailers"
                raise SpuriousError(f"local response {what} received before headers")
            case "body_response":
                self._client.data(part.body_response.body, part.body_response.end_of_stream)
            case _:
                self._client.trailers(self._headers(part.trailers_response))

    def _begin(self, head: HttpHeaders) -> None:
        if not head.end_of_stream and self._mode not in _WHOLE:
            raise SpuriousError("streaming local response body is only supported in NONE or FULL_DUPLEX_STREAMED modes")
        headers = self._headers(head.headers)
        status = get(headers, b":status")
        if status is None:
            missing = "missing required header: :status"
            details = f"filter_removed_required_response_headers{{{missing}}}"
            raise RejectedError(details, status=502, body=missing.encode())
        if (number(status) or 0) < 200:
            raise RejectedError("header_mutation_set_headers_failed")
        self.begun = True
        self._client.headers(headers, head.end_of_stream)

    def _headers(self, said: HeaderMap) -> HeaderList:
        headers: HeaderList = []
        options = [HeaderValueOption(header=one) for one in said.headers]
        apply_headers(HeaderMutation(set_headers=options), headers, self._rules)
        return headers
