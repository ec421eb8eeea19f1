"""A site on a twin whose saved machines can move between its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from outrider.core.model import Resources
from outrider.rms.base import JobState, Refused, RmsError, RmsNode
from outrider.rms.twin import Twin, TwinRules
from outrider.service.answers.switch import SwitchView
from outrider.service.desk.batch.job_effects import is_move, moved_by
from outrider.service.ports import Call, Carry, NodeImage
from outrider.service.requests import Request
from tests.unit.service.desk.jobs.yielding_site import MACHINE, SETTLED_S, happened
from tests.unit.service.desk.sandbox import ADMIN, RATE, Sandbox, digest_of

HALF_MIB, WHOLE_MIB = 32_768, 65_536


class Halls(Sandbox):
    """Nodes of 64 GiB that all have the image, and between which saved machines can move."""

    def __init__(self, folder: Path, *, shared: int = 1, **options: object) -> None:
        super().__init__(folder, **options)  # type: ignore[arg-type]
        names = list(self.pools)
        self.rms = Twin(
            [RmsNode(name=name, capacity=Resources.of(cpus=8, memory_mib=WHOLE_MIB)) for name in names],
            clock=self.clock,
            rules=TwinRules(moves_machines=True, save_s=3, jobs_on_a_processor=shared),
        )
        self.refuses: list[str] = []
        """Jobs whose machines nobody can bring over, once each."""
        self.may_go_last = False
        """Whether machines are moved that no plan has made room for."""
        self.carried: list[str] = []
        digest = digest_of("ubuntu")
        for pool in self.pools.values():
            pool.images[digest] = NodeImage(digest=digest, size_bytes=10 * RATE, uri="x")
        self._others = self._carry_out
        self._carry_out = self._carried  # type: ignore[method-assign]

    def _carried(self, call: Call) -> object:
        if not isinstance(call, Carry) or not is_move(call.effect):
            return self._others(call)
        fields = moved_by(call.effect)
        if fields["job"] in self.refuses:
            self.refuses.remove(fields["job"])
            return Refused("another version of QEMU")
        sources, targets = tuple(fields["sources"]), tuple(fields["targets"])
        moved = [pair for pair in zip(sources, targets, strict=True) if pair[0] != pair[1]]
        # As on real nodes: the script is begun on the first one, and a node has one machine of a job.
        assert moved, fields
        assert targets[0] == min(targets), fields
        assert {target for _, target in moved}.isdisjoint(sources), fields
        try:
            assert fields["goes_first"] or self.may_go_last, fields
            self.rms.move(fields["job"], tuple(sorted(targets)), goes_first=True)
        except RmsError as error:
            return error
        self.carried.append(f"{fields['job']} to {','.join(targets)}")
        return None

    def machine(
        self, memory_mib: int, *, cpus: int = 1, nodes: int = 1, wanted: JobState = JobState.RUNNING
    ) -> str:
        """`memory_mib`: on each of the nodes."""
        key = self.submit(
            more=MACHINE, argv=("sleep", "30000"), memory_mib=memory_mib, cpus=cpus, nodes=nodes
        )
        self.sleep(30)
        job = self.job(key)
        assert job is not None
        assert job.state is wanted, job
        return key

    def at(self, key: str) -> tuple[str, ...]:
        """Where it runs; nothing if it does not."""
        job = self.job(key)
        assert job is not None
        return job.nodes if job.state is JobState.RUNNING else ()

    def switch(self, request: Request) -> SwitchView:
        answer = self.ask(request, ADMIN)
        assert isinstance(answer, SwitchView), answer
        return answer

    def starts(self, key: str) -> int:
        return len(happened(self, key, "running"))


def made(folder: Path, settings: object, nodes: int = 2) -> Iterator[Halls]:
    found = Halls(folder, nodes=nodes, settings=settings)
    found.sleep(SETTLED_S)
    yield found
    found.close()
