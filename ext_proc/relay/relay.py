"""Streams passed on between a data plane's connection and one made for it to the EPP, frame by frame as they come.

One connection to the EPP for each of the data plane's keeps what belongs to connections intact: the order of streams,
their limit, GOAWAY, a connection that breaks. Nothing is waited for and nothing is changed: header lists, bytes of
messages (whatever they are), END_STREAM and RST_STREAM codes arrive as they were sent. PING and WINDOW_UPDATE are each
side's own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ext_proc.http2.dial import connect
from ext_proc.http2.errors import ConnectFailed
from ext_proc.http2.frames import MAX_STREAM_ID, PREFACE, ErrorCode
from ext_proc.http2.streams import CloseKind
from ext_proc.http2.tls import ClientTls
from ext_proc.http2.transport import Transport
from ext_proc.record import Author, Headers
from ext_proc.relay.counts import Counts
from ext_proc.relay.leg import Leg


class Witness(Protocol):
    """Who is told what was passed on. Nothing it does reaches the stream; it must not raise."""

    def headers(self, author: Author, headers: Headers, end: bool, /) -> None:
        """A header list: the EPP's head or trailers (or, of no meaning in gRPC, trailers of the data plane)."""

    def data(self, author: Author, data: bytes, end: bool, /) -> None:
        """Bytes of the stream."""

    def reset(self, author: Author, code: int, reason: str, *, refused: bool) -> None:
        """The stream was reset, or refused."""

    def lost(self, reason: str, /) -> None:
        """A connection broke."""


class Piece(NamedTuple):
    """What waits to be passed on: headers, or data, or (with neither) a reset with `code`."""

    headers: Headers | None = None
    data: bytes | None = None
    end: bool = False
    code: int = 0


class Pair:
    """A stream of the data plane (it is its sink) and the counterpart at the EPP (`_Answers` is its sink)."""

    __slots__ = ("_answered", "_bare", "_link", "_over", "_to_data_plane", "_to_epp", "_witness", "down", "head", "up")

    def __init__(self, link: Link, stream: int, head: Headers, end: bool) -> None:
        self.down = stream
        self.up = 0  # none yet
        self.head = head
        self._link = link
        self._witness: Witness | None = None
        self._bare = end  # the data plane has nothing to send but the head
        self._over = self._answered = False
        self._to_epp: deque[Piece] = deque()
        self._to_data_plane: deque[Piece] = deque()

    @property
    def holding(self) -> bool:
        """Whether something of the EPP's waits for the data plane to take it."""
        return bool(self._to_data_plane)

    # -- from the data plane -------------------------------------------------------------------------------------------

    def open(self, transport: Transport, witness: Witness | None) -> None:
        """Open the counterpart, and pass on what came meanwhile."""
        self._witness = witness
        withheld = self._link.withheld
        head = tuple(one for one in self.head if one[0] != withheld) if withheld else self.head
        self.up = transport.open(head, _Answers(self), end=self._bare)
        if self._bare and witness is not None:
            witness.data(Author.DATA_PLANE, b"", True)
        self.to_epp()

    def on_headers(self, headers: Headers, end: bool) -> None:
        self._request(Piece(headers=headers, end=end))

    def on_data(self, data: bytes, end: bool) -> None:
        self._request(Piece(data=data, end=end))

    def on_closed(self, kind: CloseKind, code: int, reason: str) -> None:
        if kind != "end" and self.up and not self._over:
            assert self._link.up is not None
            code = ErrorCode.CANCEL if kind == "lost" else code
            self._link.up.reset(self.up, code)
            if self._witness is not None:
                self._witness.reset(Author.DATA_PLANE, code, reason, refused=False)
        self._finish()

    def _request(self, piece: Piece) -> None:
        self._to_epp.append(piece)
        if self.up:
            self.to_epp()

    def to_epp(self) -> None:
        """Pass on as much as the EPP takes."""
        link, held = self._link, self._to_epp
        assert link.up is not None
        while held:
            if not link.up_leg.takes(self.up):
                link.wait_up.add(self)
                return
            piece = held.popleft()
            if piece.headers is not None:
                link.up.send_headers(self.up, piece.headers, end=piece.end)
                if self._witness is not None:
                    self._witness.headers(Author.DATA_PLANE, piece.headers, piece.end)
            else:
                data = piece.data or b""
                link.up.send(self.up, data, end=piece.end)
                link.down_leg.passed_on(self.down, len(data))
                link.counts.bytes_to_epp += len(data)
                if self._witness is not None:
                    self._witness.data(Author.DATA_PLANE, data, piece.end)

    # -- from the EPP --------------------------------------------------------------------------------------------------

    def answered(self, piece: Piece) -> None:
        """The EPP sent headers or data."""
        self._answered = self._answered or piece.end
        if self._witness is not None:
            if piece.headers is not None:
                self._witness.headers(Author.EPP, piece.headers, piece.end)
            else:
                self._witness.data(Author.EPP, piece.data or b"", piece.end)
        self._to_data_plane.append(piece)
        self.to_data_plane()

    def dropped(self, kind: CloseKind, code: int, reason: str) -> None:
        """The EPP's side of the stream is over."""
        if kind == "end" or self._over:
            return
        if kind == "lost":
            self._link.counts.lost += 1
            if self._witness is not None:
                self._witness.lost(reason)
            return
        if kind == "refused":
            code = ErrorCode.REFUSED_STREAM
            self._link.counts.refused += 1
        if self._witness is not None:
            self._witness.reset(Author.EPP, code, reason, refused=kind == "refused")
        if not self._answered:
            self._to_data_plane.clear()
        self._to_data_plane.append(Piece(code=code))
        self.to_data_plane()

    def to_data_plane(self) -> None:
        """Pass on as much as the data plane takes. A reset goes at once, unless the answer was complete before it."""
        link, held = self._link, self._to_data_plane
        while held:
            piece = held[0]
            reset = piece.data is None and piece.headers is None
            if not link.down_leg.takes(self.down) and (not reset or self._answered):
                link.wait_down.add(self)
                return
            held.popleft()
            if reset:
                link.down.reset(self.down, piece.code)
                self._finish()
                return
            if piece.headers is not None:
                link.down.send_headers(self.down, piece.headers, end=piece.end)
            else:
                data = piece.data or b""
                link.down.send(self.down, data, end=piece.end)
                link.up_leg.passed_on(self.up, len(data))
                link.counts.bytes_to_data_plane += len(data)
        link.leave_if_alone()

    # ------------------------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        if not self._over:
            self._over = True
            self._to_epp.clear()
            self._to_data_plane.clear()
            if self.up and self._link.up is not None:
                self._link.up.reset(self.up, ErrorCode.CANCEL)  # does nothing unless the EPP's side is left open
            self._link.finished(self)


class _Answers:
    """The sink of a pair's stream to the EPP."""

    __slots__ = ("_pair",)

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def on_headers(self, headers: Headers, end: bool) -> None:
        self._pair.answered(Piece(headers=headers, end=end))

    def on_data(self, data: bytes, end: bool) -> None:
        self._pair.answered(Piece(data=data, end=end))

    def on_closed(self, kind: CloseKind, code: int, reason: str) -> None:
        self._pair.dropped(kind, code, reason)


class Link:
    """A data plane's connection and the one to the EPP that stands for it.

    `witness(head, connection)` gives who is told about a new stream, or None. A header named `withheld` in the head of
    a stream is meant for the witness alone. `unreachable(problem)` is called when the EPP can't be reached; the data
    plane's connection is then cut, which is the nearest to a refused one. `unopened(first bytes)` is called when a data
    plane speaks no HTTP/2. `on_change` is called when a stream is over,
    and when the data plane knows that we leave.
    """

    def __init__(
        self,
        number: int,
        address: str,
        *,
        tls: ClientTls | None,
        timeout: float,
        counts: Counts,
        witness: Callable[[Headers, int], Witness | None],
        withheld: bytes,
        unreachable: Callable[[ConnectFailed], None],
        unopened: Callable[[bytes], None],
        on_made: Callable[[Link], None],
        on_lost: Callable[[Link], None],
        on_change: Callable[[], None],
    ) -> None:
        self.number = number
        self.counts = counts
        self.withheld = withheld
        self.down_leg = Leg(accept=self._accept, on_goaway=self._leaving, on_room=self._room_down, on_told=on_change)
        self.up_leg = Leg(on_goaway=self._farewell, on_room=self._room_up)
        self.down = Transport(self.down_leg, number=number, on_made=self._made)
        self.up: Transport | None = None
        self.wait_up: set[Pair] = set()
        self.wait_down: set[Pair] = set()
        self._address, self._tls, self._timeout = address, tls, timeout
        self._witness, self._unreachable, self._on_made, self._on_lost = witness, unreachable, on_made, on_lost
        self._on_change, self._unopened = on_change, unopened
        self._pairs: dict[int, Pair] = {}
        self._dialling: asyncio.Task[None] | None = None
        self._newest = 0  # the data plane's latest stream
        self._epp_gone = False

    @property
    def streams(self) -> int:
        """Streams that are being relayed."""
        return len(self._pairs)

    @property
    def told(self) -> bool:
        """Whether the data plane knows that we leave, so that it opens no stream here."""
        return self.down_leg.told or self.down.closed

    def leave(self) -> None:
        """Tell the data plane to open its next streams on another connection; those that are open go on."""
        self.down_leg.leave()
        self.down.flush()

    async def close(self) -> None:
        """Close both connections, and wait until they are."""
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait([self._dialling])
        for one in (self.down, self.up):
            if one is not None:
                one.close()
        for one in (self.down, self.up):
            if one is not None:
                await one.wait_closed()

    # -- the data plane's connection -----------------------------------------------------------------------------------

    def _made(self, transport: Transport) -> None:
        transport.on_lost(self._down_lost)
        self._on_made(self)
        self._dialling = asyncio.get_running_loop().create_task(self._dial())

    def _accept(self, stream: int, headers: Headers, end: bool) -> Pair | None:
        self._newest = stream
        if self.up is not None and not self.up.can_open():
            self.counts.refused += 1
            return None  # above what the EPP takes, or while it leaves: refused, as by the EPP
        pair = self._pairs[stream] = Pair(self, stream, headers, end)
        if self.up is not None:
            pair.open(self.up, self._witness(headers, self.number))
        return pair

    def _leaving(self, _last: int, code: int, debug: bytes) -> None:
        if self.up is not None:
            self.up.goaway(code, 0, debug)

    def _room_down(self) -> None:
        if self.wait_down:
            waiting, self.wait_down = self.wait_down, set()
            for pair in waiting:
                pair.to_data_plane()
            if self.up is not None:
                self.up.flush()

    def _down_lost(self) -> None:
        if self.down.first_bytes and not PREFACE.startswith(self.down.first_bytes[: len(PREFACE)]):
            self._unopened(self.down.first_bytes)
        if self._dialling is not None:
            self._dialling.cancel()
        if self.up is not None:
            self.up_leg.hush()
            self.up.close()
        self._on_lost(self)

    # -- the EPP's connection ------------------------------------------------------------------------------------------

    async def _dial(self) -> None:
        try:
            up = await connect(
                self._address,
                tls=self._tls,
                timeout=self._timeout,
                number=self.number,
                connection=lambda: self.up_leg,
            )
        except ConnectFailed as problem:
            self._unreachable(problem)
            self.down.abort()
            return
        except Exception as problem:  # noqa: BLE001 - only the data plane waits for it
            told = {"message": "no connection to the EPP could be made", "exception": problem}
            asyncio.get_running_loop().call_exception_handler(told)
            self.down.abort()
            return
        finally:
            self._dialling = None
        self.up = up
        up.on_lost(self._up_lost)
        if up.closed:
            self._up_lost()
            return
        self.down_leg.allow(up.connection.max_streams)
        for pair in tuple(self._pairs.values()):
            if up.can_open():
                pair.open(up, self._witness(pair.head, self.number))
            else:
                pair.dropped("refused", ErrorCode.REFUSED_STREAM, "more streams than the EPP takes")
        self.down.flush()

    def _farewell(self, last: int, code: int, debug: bytes) -> None:
        refused = [pair.down for pair in self._pairs.values() if pair.up > last]
        if refused:
            last = min(refused) - 2
        elif last != MAX_STREAM_ID:
            last = self._newest
        self.down.goaway(code, max(last, 0), debug)

    def _room_up(self) -> None:
        if self.wait_up:
            waiting, self.wait_up = self.wait_up, set()
            for pair in waiting:
                pair.to_epp()
            self.down.flush()

    def _up_lost(self) -> None:
        self._epp_gone = True
        self.leave_if_alone()

    # ------------------------------------------------------------------------------------------------------------------

    def finished(self, pair: Pair) -> None:
        """Nothing of a pair is left to pass on."""
        self._pairs.pop(pair.down, None)
        self.wait_up.discard(pair)
        self.wait_down.discard(pair)
        self.down_leg.forget(pair.down)
        if pair.up:
            self.up_leg.forget(pair.up)
            if self.up is not None:
                self.up.flush()
        self.leave_if_alone()
        self._on_change()

    def leave_if_alone(self) -> None:
        """Where the EPP's connection is gone, close the data plane's once all that the EPP said has been passed on."""
        if self._epp_gone and not any(pair.holding for pair in self._pairs.values()):
            self.down_leg.hush()
            self.down.close()
