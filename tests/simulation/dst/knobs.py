"""What differs between simulated worlds: sizes, rates, and how much goes wrong. Drawn from the seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.jobs.order import Order
from outrider.core.besteffort.jobs.schedule import ScheduleRules
from outrider.core.links.network import Network, NetworkLink
from outrider.rms.twin.jobs import MAIN_QUEUE
from outrider.service.settings import ScheduleSettings, Settings

MEGABYTE = 10**6


@dataclass(frozen=True, kw_only=True, slots=True)
class Knobs:
    """One world. Chances are those of one call, one transaction or one mishap."""

    nodes: int
    images: tuple[int, ...]
    """Sizes in bytes."""
    pool_bytes: int
    cpus: int
    allows_parts: bool
    """Whether anybody asks for less than a whole node."""
    settings: Settings
    origin_rate: int
    """Bytes a second of the images' server; more than the service plans with, but for slow links."""
    node_rate: int
    requests: int
    troubled_s: int
    """For how long things go wrong; afterwards nothing does."""
    request_loss: float = 0.0
    node_faults: float = 0.0
    batch_faults: float = 0.0
    store_faults: float = 0.0
    deaths: float = 0.0
    mishaps: int = 0
    longest_outage_s: int = 6
    """How long the service stays away when it was killed."""
    longest_delay_s: int = 60
    """By how much a call can be late."""
    wrong_digests: float = 0.0
    clock_steps: int = 0
    clock_jumps: int = 0
    """How often the service's clock is off by up to ten years, for less than two minutes."""
    most_reservations: int | None = None
    """How many a user may have at once."""
    machine_share_percent: int | None = None
    has_program: bool = False
    """Whether the site has a policy program of its own, which takes its time and may never answer."""
    dies_in_calm: bool = False
    layer_bytes: int = 0
    """So much of each image is a layer that all have; 0, if images are files."""
    poisoned: str = ""
    """A node that passes on wrong bytes, even when nothing else goes wrong any more."""

    @property
    def is_calm(self) -> bool:
        """Whether nothing goes wrong at all."""
        return not (
            self.mishaps or self.clock_steps or self.clock_jumps or self.request_loss or self.node_faults
        )


def in_turn(knobs: Knobs, seed: int, *, starts_jobs: bool | None = None) -> Knobs:
    """In every third world, or in all or none, the service starts the jobs, and not the batch system. Drawn
    by itself, so that all other worlds are what they were."""
    random = Random(seed * 15_485_863 + 5)
    rules = random.choice(
        (
            ScheduleRules(places=1),
            ScheduleRules(places=3),
            ScheduleRules(places=None),
            ScheduleRules(backfilling=Backfilling.GREEDY),
            ScheduleRules(backfilling=Backfilling.OFF),
        )
    )
    schedule = ScheduleSettings(
        queues=(MAIN_QUEUE,),
        rules=rules,
        order=random.choice((Order.FCFS, Order.FCFS, Order.AGE, Order.SIZE)),
        start_within_s=random.choice((60, 120)),
    )
    is_wanted = random.random() < 1 / 3 if starts_jobs is None else starts_jobs
    return replace(knobs, settings=replace(knobs.settings, schedule=schedule)) if is_wanted else knobs


def in_layers(knobs: Knobs) -> Knobs:
    """The same world, whose images consist of a layer that all have, and one of their own."""
    return replace(knobs, layer_bytes=min(knobs.images) * 3 // 4)


def over_links(knobs: Knobs) -> Knobs:
    """The same world, whose server sends to two racks, every second node in each, with half of its rate; in
    some worlds the server is two that have the same images."""
    settings = knobs.settings
    rate = settings.link_rate_bytes_per_s
    half = {
        name: NetworkLink(name=name, rate_bytes_per_s=rate // 2) for name in ("even", "odd", "one", "two")
    }
    groups = {f"n{number}": half[("even", "odd")[number % 2]] for number in range(knobs.nodes)}
    site = NetworkLink(name="site", rate_bytes_per_s=rate, lanes=2)
    network = Network(site=site, groups=groups, spread_s=settings.spread_s)
    if knobs.nodes % 2:
        network = replace(
            network,
            sources={"one": half["one"], "two": half["two"]},
            mirrors={"one": (half["two"],)},
            source_of=lambda uri: "one",
            address_at=lambda uri, source: f"{uri}#{source}",
        )
    return replace(knobs, settings=replace(settings, network=network))


def draw(random: Random, *, is_harsh: bool = False) -> Knobs:
    """A world: now and then a calm one, where every promise has to be met; or a harsh one."""
    severity = 1.0 if is_harsh else random.choice((0.0, 0.3, 0.6, 1.0, 1.0))
    is_failing, is_dying = (random.choice((is_harsh, True)) for _ in range(2))
    link_rate = 10 * MEGABYTE
    is_slow = severity > 0 and random.random() < 0.25
    troubled_s = random.choice((300, 600, 900))
    settings = Settings(
        link_rate_bytes_per_s=link_rate,
        reserve_s=random.choice((None, 0, 30, 120)),
        shipping=random.choice(("relay", "relay", "per-node")),
        pool_bytes=None,
        look_every_s=random.choice((15, 30, 60)),
        progress_every_s=random.choice((2, 5)),
        reconcile_every_s=random.choice((60, 120)),
        most_sight_age_s=300,
        away_after_s=random.choice((30, 60)),
        pin_lease_s=random.choice((600, 86_400)),
        # Longer than a call may be lost: a pin that is to be kept for longer must not end before.
        grace_s=random.choice((240, 300)),
        most_calls=random.choice((1, 2, 64)),
        allows_preemptible=True,
        allows_machines=True,
        most_requeue_grace_s=60,
        requeue_margin_s=60,
    )
    return Knobs(
        nodes=random.choice((2, 3, 4, 5, 8)),
        images=tuple(random.choice((20, 50, 100, 300)) * MEGABYTE for _ in range(random.randint(1, 3))),
        pool_bytes=random.choice((350, 700, 10_000)) * MEGABYTE,
        cpus=4,
        allows_parts=random.random() < 0.3,
        settings=settings,
        origin_rate=link_rate // 2 if is_slow else link_rate * 13 // 10,
        node_rate=20 * MEGABYTE,
        requests=random.choice((4, 8, 12, 16, 40)),
        troubled_s=troubled_s,
        request_loss=0.15 * severity,
        node_faults=0.12 * severity,
        batch_faults=0.2 * severity,
        store_faults=0.01 * severity * is_failing * (3 if is_harsh else 1),
        deaths=0.01 * severity * is_dying,
        mishaps=round(severity * random.randint(0, 10)),
        wrong_digests=0.05 * severity * random.choice((0, 1)),
        most_reservations=random.choice((None, None, 2)),
        has_program=random.random() < 0.15,
        dies_in_calm=random.random() < 0.5 if severity else False,
        machine_share_percent=random.choice((None, None, 70)),
        poisoned=random.choice(("", "", "n0", "n1")) if severity else "",
        longest_outage_s=random.choice((6, 6, 60, 300)),
        longest_delay_s=random.choice((20, 60, 400)) if severity else 0,
        clock_steps=random.choice((0, 0, 1, 3)) if severity else 0,
        clock_jumps=random.choice((0, 1, 3)) if severity else 0,
    )
