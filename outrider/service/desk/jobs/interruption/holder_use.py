"""What holder jobs had, written down for the report: the batch system charges them where the site says, and
somebody has to say whose machines they were for.

That there is one is in the store from the first look that shows it until it is asked for, so that one that
ends while no service runs is asked for all the same. The batch system's own figures are taken, so that sums
of both agree.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from outrider.rms.base import JobUse, Sight
from outrider.service.desk.batch.job_effects import HolderFields, holder_fields, use_effect
from outrider.service.desk.state.site import Site
from outrider.store.records import Effect, EntryKind, LedgerEntry
from outrider.store.store import PromiseWrites

OPEN = "holders"
"""The store's setting with those that are not over."""


class HolderUse:
    """All holder jobs that are not over."""

    def __init__(self, site: Site) -> None:
        self._site = site
        kept = json.loads(site.store.setting(OPEN) or "[]")
        self._open = {each["holder"]: HolderFields(**each) for each in kept}

    def seen(self, sight: Sight) -> None:
        """Those that are new are remembered; those that are there no more have ended."""
        found = {
            job.key: HolderFields(
                holder=job.key,
                job=job.stands_for,
                uid=job.uid,
                user=job.user,
                account=job.payer,
                submitted_s=job.submitted_s,
            )
            for job in sight.jobs
            if job.stands_for and job.key not in self._open
        }
        there = {job.key for job in sight.jobs} if found or self._open else set()
        over = [each for key, each in self._open.items() if key not in there]
        if not found and not over:
            return
        for each in over:
            del self._open[each.holder]
        self._open |= found
        effects = tuple(use_effect(each, self._site.now_s) for each in over)
        kept = json.dumps([asdict(each) for each in self._open.values()])

        def write(promise: PromiseWrites) -> None:
            promise.set(OPEN, kept)
            promise.todo(*effects)

        self._site.write(write)

    def told(self, effect: Effect, use: JobUse) -> None:
        """The batch system says what one had."""
        holder = holder_fields(effect)
        had_s = use.end_s - use.start_s
        entry = LedgerEntry(
            at_s=use.end_s,
            kind=EntryKind.HELD,
            name=f"job {holder.job}",
            uid=holder.uid,
            user=holder.user,
            account=holder.account,
            group=use.group,
            node_seconds=had_s,
            amount=had_s * use.cpus,
        )
        self._site.write(lambda promise: promise.enter(entry))
