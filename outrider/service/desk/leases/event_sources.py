"""Where events come from: the clock, the batch system's jobs, files, and sources of the site's own.

Time and jobs are known here. Files and sources are asked for, each every few seconds: a file with the
rights of the reservation's owner and no others. A file that is there already has appeared, and a job that is
not there any more has ended: what happened while the service was away counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from outrider.metadata.notation.events import FILE, JOB, SOURCE, TIME, EventSpec
from outrider.rms.base import Sight
from outrider.service.desk.state.agenda import Agenda, Topic
from outrider.service.desk.state.open_terms import OpenTerms
from outrider.service.desk.state.site import Live, Site
from outrider.service.ports import AskEvent, EventAnswer
from outrider.service.requests import Caller

ASK_EVERY_S = 5
"""How often a file or a source is asked."""
LOST_S = 120
"""A question that was not answered in so much time is asked again."""
MOST_ASKED_OF_ONE = 16
"""So many reservations of one user may wait for files or sources at once."""
ASKED = frozenset({FILE, SOURCE})


class EventSources:
    """What is known of events, by reservation."""

    def __init__(self, site: Site, agenda: Agenda) -> None:
        self._site = site
        self._agenda = agenda
        self._jobs: dict[str, int] | None = None
        """By key, whose job it is, as the last look showed them; None before the first."""
        self._happened: set[tuple[str, EventSpec]] = set()
        self._asked_s: dict[tuple[str, EventSpec], int] = {}
        """When each was asked last."""
        self._waiting: set[tuple[str, EventSpec]] = set()
        """Those without an answer yet."""
        self._open: dict[str, None] = {}
        """The reservations for which anything is asked."""

    def watch(self, live: Live) -> None:
        """It waits for an event, or for the one that ends it."""
        self._open[live.name] = None

    def fault(self, terms: OpenTerms, caller: Caller) -> str:
        """Why nobody could wait for these events for somebody."""
        for each in (*terms.begins, *terms.ends):
            if each.kind == JOB and (self._jobs is None or self._jobs.get(each.text) != caller.uid):
                return f"job {each.text} is not one of yours that waits or runs: name another"
            if each.kind == FILE and self._site.settings.looks_for_uid not in (None, caller.uid):
                return f"this service is not root, and cannot look at {each.text} with your rights"
            if each.kind == TIME and each.at_s < terms.from_s:
                return f"event {each} is before its window"
        if _asks(terms):
            own = (live.document.open for live in self._site.owned(caller.uid))
            if sum(each is not None and _asks(each) for each in own) >= MOST_ASKED_OF_ONE:
                return (
                    f"{MOST_ASKED_OF_ONE} of your reservations wait for files or sources already: cancel "
                    "one, or use outrider trigger"
                )
        return ""

    def seen(self, live: Live, wanted: Iterable[EventSpec]) -> str:
        """Which of these events has come; empty if none has."""
        for each in wanted:
            is_time = each.kind == TIME and each.at_s <= self._site.now_s
            if is_time or (live.name, each) in self._happened or self._has_ended(live, each):
                return _in_words(each)
        return ""

    def next_s(self, wanted: Iterable[EventSpec]) -> int:
        """When to look again."""
        now_s = self._site.now_s
        times = [each.at_s for each in wanted if each.kind == TIME and each.at_s > now_s]
        return min([now_s + ASK_EVERY_S, *times])

    def look(self, sight: Sight) -> list[str]:
        """The jobs that there are; the reservations for which that may be the event."""
        self._jobs = {job.key: job.uid for job in sight.jobs}
        return [
            live.name
            for live, terms in self._watched()
            if any(each.kind == JOB for each in (*terms.begins, *terms.ends))
        ]

    def calls(self) -> Iterator[AskEvent]:
        """What is to be asked now."""
        now_s = self._site.now_s
        for live, terms in self._watched():
            if now_s < terms.from_s:
                continue
            for each in terms.begins if live.waits else terms.ends:
                key = (live.name, each)
                if each.kind not in ASKED or key in self._happened:
                    continue
                asked_s = self._asked_s.get(key)
                wait_s = LOST_S if key in self._waiting else ASK_EVERY_S
                if asked_s is not None and now_s < asked_s + wait_s:
                    continue
                self._asked_s[key] = now_s
                self._waiting.add(key)
                yield AskEvent(reservation=live.name, event=each, uid=live.record.owner.uid)

    def heard(self, live: Live, call: AskEvent, answer: EventAnswer) -> bool:
        """An answer has come; whether it is that the event has happened."""
        key = (live.name, call.event)
        self._waiting.discard(key)
        if answer.words and answer.words != live.unseen:
            self._site.note("event", live.name, "unknown", answer.words)
        live.unseen = answer.words
        if answer.has_happened:
            self._happened.add(key)
            return True
        self._agenda.add(self._site.now_s + ASK_EVERY_S, Topic.OPEN, live.name)
        return False

    def _watched(self) -> list[tuple[Live, OpenTerms]]:
        """Those that are not over, and what they wait for. Of the others nothing need be known any more."""
        known = self._site.live
        for name in [name for name in self._open if name not in known]:
            del self._open[name]
            for key in [key for key in self._asked_s if key[0] == name]:
                del self._asked_s[key]
                self._happened.discard(key)
                self._waiting.discard(key)
        found = (known[name] for name in self._open)
        return [(live, live.document.open) for live in found if live.document.open is not None]

    def _has_ended(self, live: Live, event: EventSpec) -> bool:
        return event.kind == JOB and self._jobs is not None and event.text not in self._jobs


def _asks(terms: OpenTerms) -> bool:
    return any(each.kind in ASKED for each in (*terms.begins, *terms.ends))


def _in_words(event: EventSpec) -> str:
    return {
        FILE: f"file {event.text} is there",
        JOB: f"job {event.text} has ended",
        TIME: "its time has come",
        SOURCE: f"source {event.text} says so",
    }[event.kind]
