"""What judges of an episode look at: the episode in its context, with a view of each of its exchanges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from conformance.evidence.episode import ProcessExited, Unmet
from conformance.judges.episode_facts import EpisodeFacts
from conformance.judges.exchange_view import Exchanges, ExchangeView
from conformance.judges.gateway_exchange import GatewayExchange
from conformance.judges.server_view import ServerView
from conformance.reading.conversation import Conversation
from ext_proc.record import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """The target's process ended without being asked to. `suspects`: the exchanges that may have caused it."""

    entry: Entry
    exited: ProcessExited
    suspects: tuple[ExchangeView, ...]


class EpisodeView(EpisodeFacts):
    """An episode in its context, under a catalogue's rules, with a view of each exchange."""

    @cached_property
    def _all(self) -> Exchanges:
        return Exchanges(self)

    @property
    def exchanges(self) -> tuple[ExchangeView, ...]:
        """Every conversation in which the data plane wanted answers, in order."""
        return self._all.views

    @cached_property
    def exchanges_but_polls(self) -> tuple[ExchangeView, ...]:
        """The same without the polls made while the pool settles."""
        return tuple([view for view in self.exchanges if not view.settling])

    @cached_property
    def gateway_exchanges(self) -> tuple[GatewayExchange, ...]:
        """Every HTTP request as the data plane handled it, in order, but for those of which nothing can be told."""
        unmet = {event.exchange for _, event in self.episode.of(Unmet)}
        by_exchange: dict[str, list[Conversation]] = {}
        for one in self.conversations:
            if one.exchange not in unmet:
                by_exchange.setdefault(one.exchange, []).append(one)
        return tuple(GatewayExchange(self, name, found) for name, found in by_exchange.items())

    @cached_property
    def server(self) -> ServerView:
        """The requests to a model server under test, and the pages of its metrics."""
        return ServerView(self)

    @cached_property
    def crash(self) -> Crash | None:
        """That the target's process ended without being asked to."""
        if self.exit is None:
            return None
        entry, exited = self.exit
        return Crash(entry=entry, exited=exited, suspects=self._in_flight(entry.seq))

    def _in_flight(self, exit_seq: int) -> tuple[ExchangeView, ...]:
        """The exchanges that were open when the first stream was lost; if none was, the last begun before the exit."""
        begun = [view for view in self.exchanges if view.conversation.span[0] < exit_seq]
        lost = [end[0].seq for view in begun if (end := view.conversation.end) and end[1].how == "lost"]
        if not lost:
            return tuple(begun[-1:])
        return tuple(view for view in begun if view.conversation.span[0] <= min(lost) <= view.conversation.span[1])
