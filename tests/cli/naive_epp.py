"""Endpoint pickers as their authors begin them, on gRPC's own synchronous server: `naive_epp.py PORT FILE TRAIT…`.

Traits: `value` sets the header in the field that Envoy drops; `no-responses` answers the request only; `no-metadata`
sets the header only; `no-subset` picks from the whole pool; `no-trailers` ignores trailers; `threads` has a pool of
four threads, and each stream takes one; `shared` keeps the newest request's subset for all streams; `refuses-later`
has 503 for everything after its first picks; `needs-body` leaves requests without a body unanswered.
"""

from __future__ import annotations

import random
import sys
import time
from concurrent import futures
from pathlib import Path

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as ext_proc
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse

PORT, ENDPOINTS, *TRAITS = sys.argv[1:]
KEY = "x-gateway-destination-endpoint"


PICKS = iter(range(3))
"""What is left to pick of one that refuses later."""
LATEST = []


def pick(metadata):
    if "refuses-later" in TRAITS and next(PICKS, None) is None:
        return None
    if "shared" in TRAITS:
        LATEST.append(metadata)
        time.sleep(0.03)
        metadata = LATEST[-1]
    hint = metadata.filter_metadata["envoy.lb.subset_hint"].fields
    endpoints = Path(ENDPOINTS).read_text().split()
    if f"{KEY}-subset" in hint and "no-subset" not in TRAITS:
        allowed = {item.string_value for item in hint[f"{KEY}-subset"].list_value.values}
        endpoints = [one for one in endpoints if one in allowed]
    return random.choice(endpoints) if endpoints else None


def steer(endpoint):
    answer = ProcessingResponse()
    if endpoint is None:
        answer.immediate_response.status.code = 503
        return answer
    common = answer.request_headers.response
    header = common.header_mutation.set_headers.add(append_action="OVERWRITE_IF_EXISTS_OR_ADD").header
    header.key = KEY
    if "value" in TRAITS:
        header.value = endpoint
    else:
        header.raw_value = endpoint.encode()
    if "no-metadata" not in TRAITS:
        answer.dynamic_metadata["envoy.lb"] = {KEY: endpoint}
    return answer


class Processor(ext_proc.ExternalProcessorServicer):
    def Process(self, messages, context):  # noqa: N802 - the name that the service has
        for message in messages:
            kind = message.WhichOneof("request")
            answer = ProcessingResponse()
            if kind == "request_headers":
                if "needs-body" in TRAITS and message.request_headers.end_of_stream:
                    continue
                answer = steer(pick(message.metadata_context))
            elif (kind.startswith("response") and "no-responses" in TRAITS) or (
                kind.endswith("trailers") and "no-trailers" in TRAITS
            ):
                continue
            elif kind.endswith("body"):
                body = getattr(message, kind)
                streamed = getattr(answer, kind).response.body_mutation.streamed_response
                streamed.body, streamed.end_of_stream = body.body, body.end_of_stream
            else:
                getattr(answer, kind).SetInParent()
            yield answer
            if answer.HasField("immediate_response"):
                return


server = grpc.server(futures.ThreadPoolExecutor(4 if "threads" in TRAITS else 200))
ext_proc.add_ExternalProcessorServicer_to_server(Processor(), server)
server.add_insecure_port(f"127.0.0.1:{PORT}")
server.start()
server.wait_for_termination()
