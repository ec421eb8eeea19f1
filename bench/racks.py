"""How near planned transfers come to the bound of a site's topology: two racks, two servers of images.

    sudo python bench/racks.py [--nodes 8] [--mbit 40] [--mib 512]

A private Slurm with Outrider installed. Each server and each rack has a link of one rate, and a node's is
twice as fast. Two transfers: one image to all nodes of both racks, which has to cross each of these links
once; and two images of one server, one for each rack, at the same time, which come in time only if the other
server, its mirror, sends one of them. The bound of both is the bytes of one image ÷ link rate. Needs root and
Slurm.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import NOT_MEASURED, Arguments, judged, lacking
from cachemgr.base.clock import SystemClock
from outrider.metadata.notation.hostlists import expand
from outrider_client import Outrider
from outrider_client.wishes import WorkspaceText
from testbed.batchcluster import IMAGES_FOLDER, IMAGES_PORT, SERVER
from testbed.site import OutriderSite, ServedImage, site_cluster
from testbed.slurm import HEAD, IMAGES, SlurmCluster, missing

CLOCK = SystemClock()
RACKS = ("rack1", "rack2")
MIRROR = HEAD
MOST_RATIO, MOST_TIMES = 1.1, 1.1
SEEN_S = 3
AHEAD_S, LEAST_AHEAD_S = 3.0, 60
"""A start of so many bounds ahead: what is measured is how soon the images are there, not whether in time."""
LOOK_S = 1.0
PATIENCE_S = 900


class RackedSite:
    """Outrider on the cluster, and what its links have carried."""

    def __init__(self, cluster: SlurmCluster, mbit: int, racks: dict[str, list[str]]) -> None:
        self.racks, self.bytes_per_s = racks, mbit * 125_000
        self.cluster = cluster
        server = {"hosts": [f"{IMAGES}:{IMAGES_PORT}"], "rate": self.bytes_per_s}
        mirror = {"hosts": [f"{MIRROR}:{IMAGES_PORT}"], "rate": self.bytes_per_s, "mirror_of": "server"}
        groups = {rack: {"nodes": ",".join(nodes), "rate": self.bytes_per_s} for rack, nodes in racks.items()}
        link = {
            "rate": self.bytes_per_s,
            "best_effort_rate": 0,
            "reserve": "at-once",
            "spread": "3s",
            "sources": {"server": server, "mirror": mirror},
            "groups": groups,
        }
        self.site = OutriderSite(
            cluster, link_bytes_per_s=self.bytes_per_s, pool="4GiB", settings={"link": link}
        )

    def install(self, rate_bits_per_s: int) -> None:
        self.site.install()
        self.cluster.write(MIRROR, SERVER, self.cluster.read(IMAGES, SERVER))
        self.cluster.run(MIRROR, ["mkdir", "-p", IMAGES_FOLDER])
        argv = ["/usr/bin/python3", "-I", "-S", SERVER, IMAGES_FOLDER, str(IMAGES_PORT)]
        self.cluster.start(MIRROR, argv, name="mirror")
        for host in (IMAGES, MIRROR):
            self.cluster.set_rate(host, rate_bits_per_s)

    def image(self, name: str, size_bytes: int) -> ServedImage:
        """On both servers."""
        made = self.site.image(name, size_bytes)
        content = Path(self.cluster.from_outside(IMAGES, f"{IMAGES_FOLDER}/{name}")).read_bytes()
        self.cluster.write(MIRROR, f"{IMAGES_FOLDER}/{name}", content)
        return made

    def brought(self, wanted: Sequence[tuple[ServedImage, int]]) -> tuple[int, dict[str, float]]:
        """How long it took until each image was on all of so many nodes, and how often each rack's link has
        carried one meanwhile."""
        service, size_bytes = self.site.service(), wanted[0][0].size_bytes
        ahead_s = max(LEAST_AHEAD_S, int(AHEAD_S * size_bytes / self.bytes_per_s))
        before = {rack: self.cluster.rack_bytes(rack)[0] for rack in self.racks}
        began_s = CLOCK.now_s()
        places = [(image, reserved(service, image, count, ahead_s)) for image, count in wanted]
        # Nodes say when it was: whoever looks may be late.
        took_s = max(self._arrived_s(image, node) for image, (_, nodes) in places for node in nodes) - began_s
        carried = {rack: self.cluster.rack_bytes(rack)[0] - before[rack] for rack in self.racks}
        for _, (name, _) in places:
            service.cancel(name)
        show = ["scontrol", "-o", "show", "reservation"]
        self.cluster.wait_for("no reservation", lambda: "Nodes=" not in self.cluster.run(HEAD, show).stdout)
        # The service has to have seen that, or it refuses the next one.
        CLOCK.sleep(SEEN_S)
        return took_s, {rack: count / size_bytes for rack, count in carried.items()}

    def _arrived_s(self, image: ServedImage, node: str) -> int:
        until_s = CLOCK.monotonic_s() + PATIENCE_S
        while CLOCK.monotonic_s() < until_s:
            images = self.site.asked(node, "ls")["images"]
            assert isinstance(images, list)
            for each in images:
                if each["digest"] == image.digest:
                    return int(each["added_s"])
            CLOCK.sleep(LOOK_S)
        raise SystemExit(f"{image.name} is not on {node} after {PATIENCE_S} s\n{self.site.logs()}")


def reserved(service: Outrider, image: ServedImage, count: int, ahead_s: int) -> tuple[str, tuple[str, ...]]:
    """Nodes for an image: the reservation's name, and theirs."""
    name = image.name.partition(".")[0]
    text = (
        f"version: 1\nmetadata: {{name: {name}, image: {{uri: '{image.uri}', digest: '{image.digest}'}}}}\n"
        f"deployment: {{nodes: {count}, start: now+{ahead_s}s, duration: 60s}}\n"
    )
    answer = service.reserve(WorkspaceText(text))
    if answer.result != "accepted":
        raise SystemExit(f"{name} is refused: {answer.reason}")
    return answer.name, expand(answer.nodes)


def measure(racked: RackedSite, size_bytes: int, options: argparse.Namespace) -> bool:
    is_good = True
    nodes = sum(map(len, racked.racks.values()))
    shared, first, second = (racked.image(f"{name}.img", size_bytes) for name in ("all", "one", "two"))
    half = nodes // 2
    for words, wanted in (
        (f"one image to {nodes} nodes of both racks", [(shared, nodes)]),
        (f"one to {half} nodes of the one, another to as many of the other", [(first, half), (second, half)]),
    ):
        bound_s = size_bytes / racked.bytes_per_s
        took_s, carried = racked.brought(wanted)
        ratio, most = took_s / bound_s, max(carried.values())
        told = ", ".join(f"{rack} {count:.3f}" for rack, count in carried.items())
        print(
            f"{words}: bound {bound_s:.2f} s, there after {took_s} s, ratio {ratio:.3f}; "
            f"images over the link of {told}",
            flush=True,
        )
        is_good &= ratio <= MOST_RATIO and most <= MOST_TIMES
    return is_good


def main(argv: Sequence[str] | None = None) -> int:
    parser = Arguments(__doc__)
    parser.add("--nodes", 8, 4)
    parser.add_argument("--mbit", type=int, default=40, help="the rate of each server's and each rack's link")
    parser.add("--mib", 512, 8, "the size of an image")
    options = parser.given(argv)
    if lacking(missing()):
        return NOT_MEASURED
    half = options.nodes // 2
    racks = {
        rack: [f"n{number}" for number in range(place * half + 1, place * half + half + 1)]
        for place, rack in enumerate(RACKS)
    }
    rate = options.mbit * 1_000_000
    with site_cluster(2 * half, rate_bits_per_s=2 * rate, racks=racks, rack_rate_bits_per_s=rate) as cluster:
        racked = RackedSite(cluster, options.mbit, racks)
        racked.install(rate)
        return judged(options, is_good=measure(racked, options.mib << 20, options))


if __name__ == "__main__":
    raise SystemExit(main())
