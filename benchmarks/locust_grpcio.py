"""A Locust user that does two-message streams with grpcio and judges nothing, for `benchmarks/peers.py`.

locust -f benchmarks/locust_grpcio.py --headless --host HOST:PORT --users 64 --spawn-rate 64 --run-time 2s
"""

from __future__ import annotations

import time

import grpc
import grpc.experimental.gevent
from fake_proxy_vs_grpc import messages
from locust import User, events, task
from locust.env import Environment

from ext_proc.grpc import PROCESS

grpc.experimental.gevent.init_gevent()

STREAM = list(messages())


@events.init.add_listener
def _connect(environment: Environment, **_: object) -> None:
    """One channel for all users, as the other clients have few connections."""
    Streams.process = grpc.insecure_channel(environment.host).stream_stream(PROCESS.decode())


class Streams(User):
    """One stream after the other."""

    process: grpc.StreamStreamMultiCallable

    @task
    def stream(self) -> None:
        """Both messages, both answers, the end."""
        began, problem = time.perf_counter(), None
        try:
            answers = len(list(self.process(iter(STREAM))))
            if answers != len(STREAM):
                problem = RuntimeError(f"{answers} answers to {len(STREAM)} messages")
        except grpc.RpcError as error:
            problem = error
        took = (time.perf_counter() - began) * 1e3
        events.request.fire(
            request_type="grpc", name="stream", response_time=took, response_length=0, exception=problem, context={}
        )
