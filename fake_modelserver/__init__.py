"""A fleet of fake model servers in one process: every pod its own address, its gauges and faults set at run time.

`Fleet` holds pods; a `PodSpec` says what a `Pod` is, `Gauges` what it reports, a `Fault` what is wrong with it, and
`Reply` what it answers to one request. Everything runs on the caller's event loop and imports no other package here.
"""

from __future__ import annotations

from fake_modelserver.addresses import Address, Addresses, bind, has_ipv6_loopback, has_loopback_block
from fake_modelserver.engines import GENERATIONS, Engine
from fake_modelserver.errors import (
    AddressTakenError,
    AddressUnavailableError,
    FleetError,
    FleetStoppedError,
    PodExistsError,
    UnknownPodError,
)
from fake_modelserver.faults import Fault, FaultKind, FaultType, MetricsFault
from fake_modelserver.fleet import Fleet
from fake_modelserver.gauges import Decoy, Gauges, LoraSeries
from fake_modelserver.lora import LoraForm
from fake_modelserver.pod import Pod
from fake_modelserver.record import ScrapeStarted, Served
from fake_modelserver.reply import HEADER as REPLY_HEADER
from fake_modelserver.reply import BadReplyError, Reply
from fake_modelserver.scheduler import Latency, Serving
from fake_modelserver.signals import Constant, Ramp, Replay, Signal, Square
from fake_modelserver.spec import PodSpec

__all__ = [
    "GENERATIONS",
    "REPLY_HEADER",
    "Address",
    "AddressTakenError",
    "AddressUnavailableError",
    "Addresses",
    "BadReplyError",
    "Constant",
    "Decoy",
    "Engine",
    "Fault",
    "FaultKind",
    "FaultType",
    "Fleet",
    "FleetError",
    "FleetStoppedError",
    "Gauges",
    "Latency",
    "LoraForm",
    "LoraSeries",
    "MetricsFault",
    "Pod",
    "PodExistsError",
    "PodSpec",
    "Ramp",
    "Replay",
    "Reply",
    "ScrapeStarted",
    "Served",
    "Serving",
    "Signal",
    "Square",
    "UnknownPodError",
    "bind",
    "has_ipv6_loopback",
    "has_loopback_block",
]
