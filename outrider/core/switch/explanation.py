"""Why a machine is moved by a switch, or is not: each constraint that concerns it, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from outrider.core.switch.model import (
    NOWHERE,
    Action,
    ActionKind,
    MachineStanding,
    Situation,
    fits,
    minus,
    summed,
)
from outrider.core.switch.planner import Switch
from outrider.core.switch.rules import PlacementRules

MOST_NAMED = 5
"""So many machines or nodes a sentence names; of more it says how many there are."""


def explain(
    situation: Situation, switch: Switch, rules: PlacementRules, number: int, queue: Sequence[int]
) -> tuple[str, ...]:
    """What becomes of the machine, why, and when."""
    return tuple(_Explanation(situation, switch, rules, number, queue).sentences())


class _Explanation:
    def __init__(
        self, situation: Situation, switch: Switch, rules: PlacementRules, number: int, queue: Sequence[int]
    ) -> None:
        self._situation = situation
        self._switch = switch
        self._rules = rules
        self._number = number
        self._queue = queue
        self._machine = situation.machines[number]
        self._name = self._machine.name
        self._standing = situation.standings[number]
        self._from = situation.hosts[number]
        self._to = switch.target.hosts[number]

    def sentences(self) -> Iterator[str]:
        if self._number in self._switch.target.stopped:
            yield f"{self._name} is over: it is stopped"
        elif self._machine.job not in self._switch.selection.jobs:
            yield from self._not_chosen()
        elif self._standing is MachineStanding.RUNNING and self._to == self._from:
            yield f"{self._name} stays on {self._node(self._from)}"
            yield from self._is_paused()
            yield from self._may_be_on(self._to)
        elif self._standing is MachineStanding.RUNNING:
            yield f"{self._name} leaves {self._node(self._from)} for {self._node(self._to)}"
            yield from self._has_to_leave()
            yield from self._may_be_on(self._to)
        else:
            yield from self._comes()
            yield from self._may_be_on(self._to)
        yield from self._when()

    def _node(self, node: int) -> str:
        return self._situation.nodes[node].name

    def _names(self, numbers: Sequence[int]) -> str:
        words = ", ".join(self._situation.machines[each].name for each in numbers[:MOST_NAMED])
        more = len(numbers) - MOST_NAMED
        return f"{words} and {more} more" if more > 0 else words

    def _not_chosen(self) -> Iterator[str]:
        job = self._machine.job
        before = [each for each in self._queue[: self._place(job)] if each in self._switch.selection.jobs]
        becomes = "is suspended" if self._standing is MachineStanding.RUNNING else "does not run"
        yield f"{self._name} {becomes}: its job does not run now"
        if job not in self._queue:
            yield "its job is not in the queue"
            return
        members = self._situation.jobs[job]
        needs = self._total(members)
        running = [each for one in before for each in self._situation.jobs[one]]
        open_nodes = [n for n in range(len(self._situation.nodes)) if n not in self._rules.closed]
        capacity = summed((self._situation.nodes[n].capacity for n in open_nodes), len(needs))
        left = minus(capacity, self._total(running))
        if not fits(needs, left):
            yield (
                f"the {len(members)} machines of its job need {needs}; the {len(before)} chosen jobs before "
                f"it in the queue leave {left} of all nodes"
            )
            return
        largest = max(members, key=lambda each: self._situation.machines[each].demand)
        machine = self._situation.machines[largest]
        able = [n for n in open_nodes if self._rules.allows(largest, n)]
        if not any(fits(machine.demand, self._situation.nodes[n].capacity) for n in able):
            yield f"{machine.name} of its job needs {machine.demand}: no node on which it may run is so large"
            return
        yield (
            f"beside the {len(before)} chosen jobs before it in the queue, First Fit Decreasing finds no "
            f"nodes for all {len(members)} machines of its job, although {left} are left in all"
        )

    def _place(self, job: int) -> int:
        return self._queue.index(job) if job in self._queue else len(self._queue)

    def _total(self, numbers: Sequence[int]) -> tuple[int, ...]:
        resources = len(self._machine.demand)
        return summed((self._situation.machines[each].demand for each in numbers), resources)

    def _is_paused(self) -> Iterator[str]:
        """That it is saved although it stays."""
        hosts, was = self._switch.target.hosts, self._situation.hosts
        members = self._situation.jobs[self._machine.job] if self._situation.is_whole(self._number) else ()
        moved = [each for each in members if hosts[each] != was[each]]
        if moved:
            yield f"it is saved and read again there: {self._names(moved)} of its job move, all at one time"

    def _has_to_leave(self) -> Iterator[str]:
        """What keeps it from staying; if nothing does, who comes in its place."""
        found = [*self._forbidden(self._from)]
        number, hosts = self._number, self._switch.target.hosts
        standings, was = self._situation.standings, self._situation.hosts
        staying = [
            each
            for each, node in enumerate(was)
            if node == self._from and standings[each] is MachineStanding.RUNNING and hosts[each] != NOWHERE
        ]
        capacity = self._situation.nodes[self._from].capacity
        wanted = self._total(staying)
        if not fits(wanted, capacity):
            gone = [each for each in staying if hosts[each] != self._from]
            found.append(
                f"{self._node(self._from)} has {capacity}, and the {len(staying)} machines there that are to "
                f"run on need {wanted}: {self._names(gone)} with {sum(self._memory(gone))} of memory leave"
            )
        for group in self._rules.spread:
            near = [
                each for each in sorted(group - {number}) if number in group and hosts[each] == self._from
            ]
            if near:
                found.append(f"spread: {self._names(near)} is on {self._node(self._from)}")
        for group in self._rules.gather:
            if number in group:
                found.append(f"gather: {self._names(sorted(group))} are to be on one node")
        if self._situation.is_whole(number) and not found:
            members = [each for each in self._situation.jobs[self._machine.job] if each != number]
            left = [each for each in members if was[each] != hosts[each] and was[each] != NOWHERE]
            if left:
                found.append(
                    f"{self._names(left)} of its job leave, too: the first one has to be on the first of the "
                    "job's nodes"
                )
        if not found:
            comes = [n for n, node in enumerate(hosts) if node == self._from and was[n] != self._from]
            words = f"{self._names(comes)} come" if comes else "it costs no more"
            found.append(f"nothing keeps it from staying: it makes room, {words} to {self._node(self._from)}")
        yield from found

    def _memory(self, numbers: Sequence[int]) -> list[int]:
        return [self._situation.machines[each].memory for each in numbers]

    def _forbidden(self, node: int) -> Iterator[str]:
        name, rules = self._node(node), self._rules
        if node in rules.closed:
            yield f"maintenance: {name} is to be empty"
        if node in rules.ban.get(self._number, frozenset()):
            yield f"ban: it may not be on {name}"
        fence = rules.fence.get(self._number)
        if fence is not None and node not in fence:
            yield f"fence: it may be on {self._nodes(sorted(fence))} alone"

    def _nodes(self, nodes: Sequence[int]) -> str:
        words = ", ".join(self._node(each) for each in nodes[:MOST_NAMED])
        return words if len(nodes) <= MOST_NAMED else f"{words} and {len(nodes) - MOST_NAMED} more"

    def _comes(self) -> Iterator[str]:
        if self._standing is MachineStanding.WAITING:
            yield f"{self._name} is started on {self._node(self._to)}"
        elif self._to == self._from:
            yield f"{self._name} is resumed on {self._node(self._to)}, where its state lies"
        else:
            at, to = self._node(self._from), self._node(self._to)
            yield f"{self._name} is resumed on {to}; its state comes from {at}"
            found = [*self._forbidden(self._from)]
            others = [n for n, node in enumerate(self._switch.target.hosts) if node == self._from != NOWHERE]
            free = minus(self._situation.nodes[self._from].capacity, self._total(others))
            if not fits(self._machine.demand, free):
                found.append(
                    f"room: {self._node(self._from)} has {free} left in the end, it needs {self._demand}"
                )
            elif not fits(self._machine.demand, self._situation.free[self._from]):
                found.append(f"room: {self._node(self._from)} has it only when others have left")
            yield from found

    @property
    def _demand(self) -> tuple[int, ...]:
        return self._machine.demand

    def _may_be_on(self, node: int) -> Iterator[str]:
        """Every constraint that it keeps there."""
        rules, hosts, name = self._rules, self._switch.target.hosts, self._node(node)
        others = [each for each, at in enumerate(hosts) if at == node and each != self._number]
        left = minus(self._situation.nodes[node].capacity, self._total(others))
        yield f"room: {name} has {left} for it beside {len(others)} others, it needs {self._demand}"
        if self._situation.is_whole(self._number):
            members = self._situation.jobs[self._machine.job]
            beside = [f"{self._situation.machines[n].name} on {self._node(hosts[n])}" for n in members]
            yield f"whole: its job moves whole, its first machine on the first node: {', '.join(beside)}"
        if self._number in rules.keep:
            yield "keep: it is never moved while it runs"
        fence = rules.fence.get(self._number)
        if fence is not None:
            yield f"fence: {name} is among {self._nodes(sorted(fence))}"
        for group in rules.spread:
            if self._number in group:
                yield f"spread: none of {self._names(sorted(group - {self._number}))} is on {name}"
        for group in rules.gather:
            if self._number in group:
                yield f"gather: {self._names(sorted(group - {self._number}))} are on {name}, too, if they run"
        if self._machine.image:
            has = "has" if self._machine.image in self._situation.nodes[node].images else "does not have"
            yield f"image: {name} {has} {self._machine.image}"

    def _when(self) -> Iterator[str]:
        stages = self._switch.plan.stages
        for count, stage in enumerate(stages):
            for action in stage:
                if action.machine == self._number:
                    yield f"stage {count + 1} of {len(stages)}: {self._step(action)}"

    def _step(self, action: Action) -> str:
        if action.kind is ActionKind.MIGRATE:
            aside = "" if action.target == self._to else ", aside, so that a circle can move"
            return f"migrate from {self._node(action.source)} to {self._node(action.target)}{aside}"
        if action.kind is ActionKind.PAUSE:
            return f"save and read again on {self._node(action.source)}"
        if action.kind is ActionKind.RESUME:
            return f"resume on {self._node(action.target)}"
        if action.kind is ActionKind.RUN:
            return f"run on {self._node(action.target)}"
        words = "stop" if action.kind is ActionKind.STOP else "suspend"
        return words if action.source == NOWHERE else f"{words} on {self._node(action.source)}"
