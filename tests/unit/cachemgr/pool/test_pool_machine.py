"""Hypothesis against a naive model: dictionaries that know what the pool was told.

The model knows neither folders nor an index; it says what has to be there, what must not be,
and what an answer may be.
"""

from __future__ import annotations

from contextlib import suppress

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cachemgr.base.errors import NeverFits, NoRoom
from cachemgr.base.hashing import InlineHasher
from cachemgr.pool import room
from cachemgr.pool.check import check
from cachemgr.pool.ingest import Writer, drop_stale
from cachemgr.pool.pool import INGEST_LEASE_S, ImagePool, Want
from cachemgr.pool.records import Alias, PoolImage, PoolPin
from tests.amount import examples
from tests.simulation.crash.memorynodes import Crash, Fault
from tests.simulation.crash.world import World, digest_of

LIMIT_BYTES = 100
# Sizes from nothing to more than the pool holds; 31 + 37 + 41 is just more than it holds.
CONTENTS = [bytes([65 + number]) * size for number, size in enumerate((0, 31, 37, 41, 100, 101))]
OWNERS = ("job 1", "job 2")
NAMES = ("latest", "stable")


class PoolMachine(RuleBasedStateMachine):
    """One pool, used by whoever."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(limit_bytes=LIMIT_BYTES)
        self.world.create()
        self.sizes: dict[str, int] = {}
        self.here: set[str] = set()
        self.arriving: dict[str, int] = {}
        self.leases: dict[str, int] = {}
        self.writers: dict[str, Writer] = {}
        self.pins: dict[tuple[str, str], int] = {}
        self.names: dict[str, str] = {}

    @property
    def pool(self) -> ImagePool:
        return self.world.pool

    @property
    def now_s(self) -> int:
        return self.world.clock.now_s()

    @initialize()
    def filled(self) -> None:
        with self.pool.changing("filling the index"):
            pass

    # -- rules -----------------------------------------------------------------------------

    @rule(content=st.sampled_from(CONTENTS), owner=st.sampled_from(OWNERS), lease_s=st.integers(1, 50))
    def want(self, content: bytes, owner: str, lease_s: int) -> None:
        digest, size = digest_of(content), len(content)
        was_here, was_arriving = digest in self.here, digest in self.arriving
        pin = PoolPin(owner=owner, kind="hold", uid=0, expires_s=self.now_s + lease_s, from_s=self.now_s)
        held = sum(self.sizes[each] for each in self.here if self.is_held(each))
        # What arrives for nobody goes before somebody who is trusted is refused.
        arriving = [each for each in self.arriving if each in self.writers or self.is_held(each)]
        free = LIMIT_BYTES - held - sum(self.arriving[each] for each in arriving)
        try:
            found = self.pool.want(Want(uri=f"u{size}", size_bytes=size, digest=digest), pin)
        except NeverFits:
            assert size > LIMIT_BYTES
            return
        except NoRoom:
            assert size > free
            assert not was_here
            assert not was_arriving
            return
        self.sizes[digest] = size
        # A lease that holds is never shortened.
        self.pins[digest, owner] = max(pin.expires_s, self.pins.get((digest, owner), 0))
        assert isinstance(found, PoolImage) == was_here
        if not was_here and not was_arriving:
            assert size <= free
            self.arriving[digest] = size
            self.leases[digest] = self.now_s + INGEST_LEASE_S
        self.forget_evicted()

    @rule(content=st.sampled_from(CONTENTS), share=st.sampled_from((0.3, 0.6, 1)))
    def write(self, content: bytes, share: float) -> None:
        digest = digest_of(content)
        ingest = self.pool.ingest(digest)
        assert (ingest is not None) == (digest in self.arriving)
        if ingest is None:
            return
        if digest not in self.writers:
            writer = ingest.writer(InlineHasher())
            assert writer is not None
            self.writers[digest] = writer
        writer = self.writers[digest]
        end = int(len(content) * share)
        if writer.offset < end:
            writer.write(content[writer.offset : end])

    @rule(content=st.sampled_from(CONTENTS))
    def commit(self, content: bytes) -> None:
        digest = digest_of(content)
        writer = self.writers.get(digest)
        if writer is not None and writer.offset == len(content):
            del self.writers[digest]
            image = writer.commit()
            assert image.digest == digest
            del self.arriving[digest]
            self.here.add(digest)

    @rule(content=st.sampled_from(CONTENTS), owner=st.sampled_from(OWNERS), lease_s=st.integers(1, 50))
    def bring(self, content: bytes, owner: str, lease_s: int) -> None:
        """All of the above at once, so that images get in often enough."""
        self.want(content, owner, lease_s)
        self.write(content, 1)
        self.commit(content)

    @rule(content=st.sampled_from(CONTENTS))
    def abandon(self, content: bytes) -> None:
        digest = digest_of(content)
        if digest in self.writers:
            self.writers.pop(digest).abandon()
            self.forget_ingest(digest)

    @rule(content=st.sampled_from(CONTENTS), owner=st.sampled_from(OWNERS))
    def unpin(self, content: bytes, owner: str) -> None:
        digest = digest_of(content)
        was_there = self.pins.pop((digest, owner), None) is not None
        assert self.pool.unpin(digest, owner) == was_there

    @rule(content=st.sampled_from(CONTENTS))
    def evict(self, content: bytes) -> None:
        digest = digest_of(content)
        may_go = digest in self.here and not self.is_held(digest)
        with self.pool.changing("evicting"):
            assert room.evict(self.pool, digest) == may_go
        self.forget_evicted()

    @rule(content=st.sampled_from(CONTENTS), name=st.sampled_from(NAMES))
    def name(self, content: bytes, name: str) -> None:
        self.pool.add_alias(Alias(name, digest_of(content)))
        self.names[name] = digest_of(content)

    @rule(name=st.sampled_from(NAMES))
    def forget_name(self, name: str) -> None:
        was_there = self.names.pop(name, None) is not None
        assert self.pool.remove_alias(name) == was_there

    @rule(content=st.sampled_from(CONTENTS))
    def use(self, content: bytes) -> None:
        self.pool.use(digest_of(content))

    @rule(seconds=st.sampled_from((1, 10, 60, 2 * INGEST_LEASE_S)))
    def pass_time(self, seconds: int) -> None:
        self.world.clock.at_s += seconds

    @rule()
    def tidy(self) -> None:
        dropped = set(drop_stale(self.pool))
        for digest in dropped:
            assert digest not in self.writers
            assert self.leases[digest] <= self.now_s
            self.forget_ingest(digest)

    @rule(names=st.sampled_from(("none", "all", "prefix")), seed=st.integers(0, 5))
    def lose_power(self, names: str, seed: int) -> None:
        """Everything above was acknowledged, so nothing of it may go."""
        self.writers.clear()
        self.world.after_power_loss(names, "torn", seed)
        with self.pool.changing("looking"):
            pass

    @precondition(lambda self: not self.writers)
    @rule(at=st.integers(0, 40), content=st.sampled_from(CONTENTS))
    def crash_while_wanting(self, at: int, content: bytes) -> None:
        """What was not acknowledged may have happened, but only wholly."""
        self.world.disk.arm(Fault("crash", at))
        digest = digest_of(content)
        with suppress(Crash, NoRoom):
            self.pool.want(Want(uri="u", size_bytes=len(content), digest=digest))
        self.world.after_crash()
        with self.pool.changing("looking"):
            pass
        if digest not in self.arriving and self.pool.ingest(digest) is not None:
            self.sizes[digest] = self.arriving[digest] = len(content)
            self.leases[digest] = self.now_s + INGEST_LEASE_S
        self.forget_evicted()

    # -- what holds always -----------------------------------------------------------------

    @invariant()
    def images_are_those_of_the_model(self) -> None:
        assert {image.digest: image.size_bytes for image in self.pool.images()} == {
            digest: self.sizes[digest] for digest in self.here
        }

    @invariant()
    def bytes_add_up_within_the_limit(self) -> None:
        used = sum(self.sizes[digest] for digest in self.here) + sum(self.arriving.values())
        with self.pool.changing("looking"):
            assert self.pool.index.used_bytes() == used
        assert used <= LIMIT_BYTES

    @invariant()
    def pins_are_those_of_the_model(self) -> None:
        found = {
            (digest, pin.owner): pin.expires_s for digest in self.sizes for pin in self.world._pins_of(digest)
        }
        assert found == self.pins

    @invariant()
    def names_find_what_is_here(self) -> None:
        for name in NAMES:
            digest = self.names.get(name, "")
            assert self.world.named(name) == (digest if digest in self.here else None)

    @invariant()
    def check_finds_nothing_but_what_is_over(self) -> None:
        found = check(self.pool, self.world.maker, fix=False)
        over = ("an expired pin", "the alias", "a draft", "what is left of an ingest")
        assert [each.what for each in found if not each.what.startswith(over)] == []

    # -- the model -------------------------------------------------------------------------

    def is_held(self, digest: str) -> bool:
        return any(key == digest and expires_s > self.now_s for (key, _), expires_s in self.pins.items())

    def forget_evicted(self) -> None:
        """Which ones go is the policy's choice; that none goes which is held is the model's."""
        there = {image.digest for image in self.pool.images()}
        for digest in self.here - there:
            assert not self.is_held(digest)
            self.forget_pins(digest)
        self.here &= there
        arriving = {ingest.key for ingest in self.pool.ingests()}
        for digest in self.arriving.keys() - arriving:
            assert digest not in self.writers
            assert not self.is_held(digest)
            self.forget_ingest(digest)

    def forget_ingest(self, digest: str) -> None:
        del self.arriving[digest]
        self.forget_pins(digest)

    def forget_pins(self, digest: str) -> None:
        for key in [key for key in self.pins if key[0] == digest]:
            del self.pins[key]

    def teardown(self) -> None:
        for writer in self.writers.values():
            writer.close()


def test_pool_answers_as_the_model_does() -> None:
    quick = settings(
        max_examples=examples(80),
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(PoolMachine, settings=quick)
