"""A large site for the benchmark of the service, and outriderd itself for it, run as a program.

Everything is the product's own (loop, desk, workers, web server, store, catalogue) but the
nodes and the batch system, which are those of `service_world`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.admission import request, site
from bench.service_world import POOL_BYTES, BookingSystem, Journal, MemoryNodes
from cachemgr.base.clock import SystemClock
from outrider.core.model import Image, Resources, Workspace
from outrider.metadata.decision import Allowed, PolicyRefusal
from outrider.metadata.validation import Circumstances
from outrider.metadata.workspace import WorkspaceFile
from outrider.rms.base import RmsNode

IMAGES = 200
RATE = 1_250_000_000
FIRST_START_S = 900
"""Nothing starts earlier: what is filled in takes minutes, and is in time nevertheless."""
POLICIES = "version: 1\nrules:\n  - {name: everybody, reservations: 100000}\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchedSite:
    """Where everything of one benchmarked service is, and how large the site is."""

    folder: Path
    nodes: int

    @property
    def socket(self) -> Path:
        return self.folder / "outriderd.sock"

    @property
    def store(self) -> Path:
        return self.folder / "state" / "outriderd.sqlite"

    @property
    def config(self) -> Path:
        return self.folder / "outriderd.yaml"

    def batch_system(self, clock: SystemClock) -> BookingSystem:
        return BookingSystem(rms_nodes(self.nodes), clock, Journal(self.folder / "batch.jsonl"))

    def pools(self, clock: SystemClock) -> MemoryNodes:
        names = [each.name for each in rms_nodes(self.nodes)]
        return MemoryNodes(names, clock, Journal(self.folder / "pools.jsonl"))


@cache
def rms_nodes(count: int) -> list[RmsNode]:
    """The nodes of `bench/admission.py`, in the units of the service, and by name as at any look."""
    nodes = [RmsNode(name=each.name, capacity=_in_mib(each.capacity)) for each in site(count)]
    return sorted(nodes, key=lambda node: node.name)


@cache
def _in_mib(resources: Resources) -> Resources:
    amounts = dict(resources.amounts)
    return Resources.from_mapping({**amounts, "memory_mib": 1024 * amounts.pop("memory_gib")} | amounts)


def images() -> list[Image]:
    random = Random(1)
    return [
        Image(
            uri=f"image{number}",
            size_bytes=random.randint(1, 20) * 10**9,
            digest=f"sha256:{hashlib.sha256(str(number).encode()).hexdigest()}",
        )
        for number in range(IMAGES)
    ]


def write_config(place: BenchedSite) -> None:
    """The configuration, whose one node only satisfies its form: the batch system says which there are."""
    (place.folder / "policies.yaml").write_text(POLICIES)
    settings: dict[str, Any] = {
        "version": 1,
        "state": str(place.store.parent),
        "socket": str(place.socket),
        "policies": str(place.folder / "policies.yaml"),
        "link": {"rate": RATE},
        "pools": {"size": POOL_BYTES},
        "images": {
            each.uri: {
                "uri": f"https://images.example.org/{each.uri}",
                "digest": each.digest,
                "size": each.size_bytes,
            }
            for each in images()
        },
        "backend": {"kind": "twin", "nodes": "n0"},
        "log": {"level": "warning"},
    }
    # JSON is YAML, too.
    place.config.write_text(json.dumps(settings, indent=1))


def wish(number: int, random: Random, known: list[Image]) -> dict[str, Any]:
    """What a user writes down: the requests of `bench/admission.py` as workspaces."""
    return written(request(number, random, known, 1))


def written(workspace: Workspace) -> dict[str, Any]:
    """A workspace as its file says it, with its start as seconds from now."""
    amounts, image = dict(workspace.resources.amounts), workspace.image
    assert image is not None
    assert workspace.start_s is not None
    return {
        "version": 1,
        "metadata": {"name": f"w{workspace.name[1:]}", "image": {"uri": image.uri}},
        "deployment": {
            "nodes": workspace.instances,
            "cpus": amounts["cpus"],
            "memory": f"{amounts['memory_gib']}GiB",
            "duration": f"{workspace.duration_s}s",
            "start": f"now+{FIRST_START_S + workspace.start_s}seconds",
        },
    }


def understood(wanted: dict[str, Any], now_s: int) -> WorkspaceFile:
    """The same as the service reads it, without the text in between."""
    circumstances = Circumstances(now_s=now_s, zone=UTC)
    return WorkspaceFile.model_validate(wanted, context=circumstances)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    options = parser.parse_args(argv)
    place = BenchedSite(folder=options.folder, nodes=options.nodes)
    return _serve(place)


def _serve(place: BenchedSite) -> int:
    """outriderd's own main, over another world."""
    from outrider.collector import collector_paused

    # As outriderd imports it.
    with collector_paused():
        from outrider.service.daemon.configuration.model import Config
        from outrider.service.daemon.life import Providers
        from outrider.service.daemon.log import TracingLog
        from outrider.service.daemon.main import main as outriderd
        from outrider.service.daemon.world.backends import make_desk
        from outrider.service.daemon.world.catalogue import catalogue_of
        from outrider.service.daemon.world.world import World
        from outrider.service.desk.batch.reservation_effects import carry_out
        from outrider.service.images.hashing import Hashes
        from outrider.service.images.opening import opener
        from outrider.service.images.resolving import Resolver
        from outrider.service.ports import AskProgram

    clock = SystemClock()

    class Backend:
        def __init__(self, world: World) -> None:
            self.world = world

        def start(self) -> None: ...

        def stop(self) -> None: ...

    def make_backend(config: Config, log: TracingLog, environment: Mapping[str, str]) -> Backend:
        catalogue = catalogue_of(config)
        hashes = Hashes(Path(config.state) / "hashes.json", clock)
        resolver = Resolver(open_as=opener(), hashes=hashes, clock=clock, catalogue=catalogue)
        return Backend(World(rms=place.batch_system(clock), nodes=place.pools(clock), resolve=resolver))

    def ask_program(call: AskProgram) -> Allowed | PolicyRefusal:
        raise AssertionError("there is no program")

    providers = Providers(
        make_backend=make_backend, make_desk=make_desk, carry_effect=carry_out, ask_program=ask_program
    )
    return outriderd(["--config", str(place.config)], providers=providers)


if __name__ == "__main__":
    raise SystemExit(main())
