"""Where a job may run, as far as Slurm says, and how it is led to some nodes of these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from outrider.core.model import Resources
from outrider.metadata.errors import TextError
from outrider.metadata.notation.hostlists import expand, fold
from outrider.rms.base import Refused
from outrider.rms.slurm.fields import value_in
from outrider.rms.slurm.jobs import SlurmJob
from outrider.rms.slurm.nodes import SlurmNode
from outrider.rms.slurm.records import NodeWish

_FEATURES = re.compile(r"[^&|,()\[\]*!]+")


class Places:
    """The nodes of one look. The same wishes are worked out once."""

    def __init__(self, nodes: Iterable[SlurmNode], order: Iterable[str] = ()) -> None:
        """`order`: as Slurm numbers them, if not as they come."""
        self._nodes = {each.node.name: each for each in nodes}
        self._rank = {name: rank for rank, name in enumerate(order or self._nodes)}
        self._partitions = tuple(sorted({name for each in self._nodes.values() for name in each.partitions}))
        self._known: dict[tuple[object, ...], tuple[str, ...]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._nodes)

    @property
    def partitions(self) -> tuple[str, ...]:
        """Those that have nodes, sorted."""
        return self._partitions

    def count_of(self, wanted: Resources) -> int:
        """How many nodes have all that."""
        capacities = [dict(each.node.capacity.amounts) for each in self._nodes.values()]
        return sum(all(each.get(name, 0) >= amount for name, amount in wanted.amounts) for each in capacities)

    def cpus_of(self, names: Iterable[str]) -> int:
        """How many CPUs these nodes have together."""
        found = (self._nodes.get(name) for name in names)
        return sum(each.node.capacity["cpus"] for each in found if each is not None)

    def in_order(self, names: Iterable[str]) -> tuple[str, ...]:
        """Nodes as a job has them: on the first one its script begins."""
        return tuple(sorted(names, key=lambda name: (self._rank.get(name, 0), name)))

    def eligible(self, job: SlurmJob) -> tuple[str, ...]:
        """The nodes on which it may run, sorted; nothing means all of them. Raises TextError."""
        saved_on = "" if job.record.saved is None else job.record.saved.node
        key = (job.partitions, job.wish, job.features, job.nodes_wanted, saved_on)
        if key not in self._known:
            self._known[key] = self._work_out(job)
        return self._known[key]

    def elsewhere(self, job: SlurmJob) -> tuple[str, ...]:
        """Where its machines could go on instead of where they are; nothing for one without metadata."""
        saved = job.record.saved
        if job.record.metadata is None or not job.is_batch or job.tasks > 1 or not (saved or job.nodes):
            return ()
        here = job.nodes or (saved.nodes if saved else ())
        try:
            found = self.eligible(replace(job, record=replace(job.record, saved=None)))
        except TextError:
            return ()
        return self.in_order(set(found or self._nodes) - set(here))

    def _work_out(self, job: SlurmJob) -> tuple[str, ...]:
        partitions = frozenset(job.partitions)
        excluded = frozenset(_names(job.wish.excluded))
        required = _names(job.wish.required)
        features = _alternatives(job.features)
        fitting = [
            name
            for name, each in self._nodes.items()
            if name not in excluded
            and (not partitions or not partitions.isdisjoint(each.partitions))
            and (features is None or any(wanted <= each.features for wanted in features))
        ]
        if len(required) >= job.nodes_wanted:
            fitting = [name for name in fitting if name in required]
        if job.record.saved is not None:
            # Its machines are there and nowhere else.
            fitting = list(job.record.saved.nodes)
        return () if len(fitting) == len(self._nodes) else tuple(sorted(fitting))


def sharing_in(data: bytes) -> tuple[tuple[str, int], ...]:
    """Partitions, as `scontrol -o show partition` prints them, in which all jobs share processors, and how
    many may have the same one. With `YES` those share that have asked for it, which is not shown."""
    found = []
    for line in data.decode("utf-8", "replace").splitlines():
        name, share = value_in(line, "PartitionName"), value_in(line, "OverSubscribe") or ""
        count = share.removeprefix("FORCE:")
        if name and share.startswith("FORCE:") and count.isdecimal() and len(count) < 6 and int(count) > 1:
            found.append((name, int(count)))
    return tuple(sorted(found))


def led(job: SlurmJob, nodes: tuple[str, ...], all_nodes: Iterable[str]) -> NodeWish:
    """What Slurm has to be asked for, so that the job runs on nodes among these, and its user is content.

    As many nodes as it wants are required; of more the others are excluded, since Slurm would take
    a longer list of required nodes as a wish for all of them.
    """
    own = job.wish
    if not nodes:
        return own
    wanted, required = frozenset(nodes), frozenset(_names(own.required))
    if len(wanted) < job.nodes_wanted:
        raise Refused(f"job {job.key} wants {job.nodes_wanted} nodes: {fold(nodes)} do not suffice")
    if not required <= wanted:
        raise Refused(
            f"job {job.key} has to run on {own.required}, as its user wants it, not on {fold(nodes)}"
        )
    if len(wanted) == job.most_nodes:
        return NodeWish(required=fold(wanted), excluded=own.excluded)
    others = (frozenset(all_nodes) - wanted) | frozenset(_names(own.excluded))
    return NodeWish(required=own.required, excluded=fold(others))


def _names(hostlist: str) -> tuple[str, ...]:
    return expand(hostlist) if hostlist else ()


def _alternatives(features: str) -> list[frozenset[str]] | None:
    """`a&b|c` as sets of features; None if that says nothing, or is more than that."""
    if not features or set("[]()*!,") & set(features):
        return None
    return [frozenset(_FEATURES.findall(part)) for part in features.split("|")]


def unknown(nodes: Iterable[str], known: Mapping[str, object] | Iterable[str]) -> list[str]:
    there = frozenset(known)
    return sorted({name for name in nodes if name not in there})
