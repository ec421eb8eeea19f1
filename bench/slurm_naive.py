"""What users see with Outrider and with the naive ways, on the same links in the same run.

The naive ways: the job's script fetches the image with curl on each of its nodes; or slurmd's prolog
does so. Outrider: cold (nobody has the image), warm (the same image again), and with a reservation.
Two loads: one job on all nodes, and many jobs of one node each, handed in at once, with one image.
The delay runs from sbatch, or from a reservation's start, until the image can be read on all nodes of
the job; the part of it after the job's start in slurmctld's log is taken out of the user's time limit.
Bytes are what the image server's link has sent. Needs root, Slurm and curl; a figure, matplotlib.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import time_ns

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import NOT_MEASURED, Arguments, lacking
from bench.slurm_records import load, path_of, starts_s, traffic_of
from testbed.site import OutriderSite, ServedImage, site_cluster
from testbed.slurm import HEAD, IMAGES, IMAGES_FOLDER, SlurmCluster, missing

NODES = 4
RATE_BITS_PER_S = 100_000_000
LINK_BYTES_PER_S = 11_500_000
LEAD_S = 12
ROUND_S = 120
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "slurm-start.svg"
LOADS = {"one job on 4 nodes": (1, 4), "8 jobs on 1 node each": (8, 1)}
WAYS = (
    "fetch in the job",
    "fetch in the prolog",
    "Outrider, cold",
    "Outrider, warm",
    "Outrider, reservation",
)

PROLOG = """\
#!/bin/sh
case ${SLURM_JOB_COMMENT-} in
fetch=*) /usr/bin/curl -sf -o "/var/tmp/image-$SLURM_JOB_ID" "${SLURM_JOB_COMMENT#fetch=}" ;;
esac
exit 0
"""
EPILOG = """\
#!/bin/sh
/bin/rm -f "/var/tmp/image-$SLURM_JOB_ID"
"""
NAIVE = (
    "Prolog=/etc/slurm/prolog",
    "Epilog=/etc/slurm/epilog",
    "PrologFlags=Alloc,DeferBatch",
    "PrologEpilogTimeout=300",
    "BatchStartTimeout=360",
)
# On each node: get the image, if that is the way, read from it, say when.
JOB = """#!/bin/sh
{lines}
srun --quiet sh -c 'image={image}; {fetch} && head -c4096 "$image" >/dev/null && date +%s.%N; {clean}'
"""


@dataclass(frozen=True, slots=True)
class WayCost:
    """What one way cost under one load."""

    delays_s: list[float]
    clocks_s: list[float]
    served_bytes: int
    needed_bytes: int


@dataclass(frozen=True, slots=True)
class ImageWay:
    """Where and how jobs get their image."""

    cluster: SlurmCluster
    script: str
    options: tuple[str, ...]
    from_s: float | None = None


class Sites:
    """The cluster whose prolog fetches, the cluster with Outrider, and the images of a round."""

    def __init__(self, naive: SlurmCluster, site: OutriderSite, size_bytes: int) -> None:
        self.naive, self.site, self._size_bytes = naive, site, size_bytes
        self._numbers = 0

    def image(self) -> ServedImage:
        """An image that nobody has seen."""
        self._numbers += 1
        return self.site.image(f"image{self._numbers}.qcow2", self._size_bytes)

    def shared(self, image: ServedImage) -> None:
        """Put it on the other cluster's server, too."""
        content = path_of(self.site.cluster, IMAGES, f"{IMAGES_FOLDER}/{image.name}")
        self.naive.publish(image.name, content.read_bytes())


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--rounds", 3, 1)
    parser.add("--megabytes", 20, 1, "the size of an image")
    parser.add_argument("--figure", type=Path, help=f"draw it there, such as {FIGURE}")
    given = parser.given()
    if lacking(missing() or (None if shutil.which("curl") else "needs curl: apt install curl")):
        return NOT_MEASURED
    with ExitStack() as stack:
        naive = stack.enter_context(
            SlurmCluster(
                nodes=NODES,
                rate_bits_per_s=RATE_BITS_PER_S,
                slurm_conf_lines=NAIVE,
                files={"/etc/slurm/prolog": PROLOG, "/etc/slurm/epilog": EPILOG},
            )
        )
        cluster = stack.enter_context(site_cluster(NODES, rate_bits_per_s=RATE_BITS_PER_S))
        site = OutriderSite(cluster, link_bytes_per_s=LINK_BYTES_PER_S)
        site.install()
        sites = Sites(naive, site, given.megabytes * 1_000_000)
        print(f"{NODES} nodes, links of {RATE_BITS_PER_S / 1e6:g} Mbit/s, {given.rounds} rounds; {load()}")
        found: dict[tuple[str, str], list[WayCost]] = {}
        for _ in range(given.rounds):
            for name, (jobs, width) in LOADS.items():
                for way, outcome in once(sites, jobs, width):
                    found.setdefault((name, way), []).append(outcome)
                    delay_s = max(outcome.delays_s)
                    print(f"  {name}: {way}: last ready after {delay_s:.2f} s", flush=True)
        print(f"at the end {load()}")
    rows = table(found)
    if given.figure is not None:
        draw(rows, given.figure, given.megabytes)
    return 0


def once(sites: Sites, jobs: int, width: int) -> Iterable[tuple[str, WayCost]]:
    """Every way in turn, each alone on its cluster."""
    site, image = sites.site, sites.image()
    sites.shared(image)
    wide = ("-t5", f"-N{width}", "--ntasks-per-node=1", "-n1" if width == 1 else f"-n{width}")
    fetched = JOB.format(
        lines="",
        image="/var/tmp/mine-$SLURM_JOB_ID",
        fetch=f'curl -sf -o "$image" {image.uri}',
        clean='rm -f "$image"',
    )
    at_hand = JOB.format(lines="", image="/var/tmp/image-$SLURM_JOB_ID", fetch="true", clean="true")
    led = JOB.format(lines=image.lines, image="$OUTRIDER_IMAGE", fetch="true", clean="true")
    inside = JOB.format(lines="", image="$OUTRIDER_IMAGE", fetch="true", clean="true")
    # Where the naive ways run, nothing of Outrider runs.
    yield WAYS[0], run(ImageWay(sites.naive, fetched, wide), image, jobs, width)
    comment = f"--comment=fetch={image.uri}"
    yield WAYS[1], run(ImageWay(sites.naive, at_hand, (*wide, comment)), image, jobs, width)
    yield WAYS[2], run(ImageWay(site.cluster, led, wide), image, jobs, width)
    yield WAYS[3], run(ImageWay(site.cluster, led, wide), image, jobs, width)
    other = sites.image()
    before = traffic_of(site.cluster)
    name, start_s = reserved(site, other)
    way = ImageWay(site.cluster, inside, (*wide, f"--reservation={name}"), start_s)
    outcome = run(way, other, jobs, width)
    served = traffic_of(site.cluster).since(before).served_bytes
    yield WAYS[4], WayCost(outcome.delays_s, outcome.clocks_s, served, outcome.needed_bytes)
    site.outrider("cancel", name, check=False)
    site.cluster.wait_for(
        "the reservation to go",
        lambda: name not in site.cluster.run(HEAD, ["scontrol", "show", "res"], check=False).stdout,
        ROUND_S,
        site.logs,
    )


def reserved(site: OutriderSite, image: ServedImage) -> tuple[str, float]:
    """All nodes, from a little later on."""
    text = (
        f"version: 1\nmetadata: {{name: lecture, image: {{uri: '{image.uri}', digest: '{image.digest}'}}}}\n"
        f"deployment: {{nodes: {NODES}, duration: 10m}}\n"
    )
    path = f"{site.home()}/lecture.yaml"
    site.cluster.write(HEAD, path, text)
    told = ""

    def is_accepted() -> bool:
        # Nodes whose jobs have just ended are seen to be free at the next look.
        nonlocal told
        told = site.outrider("reserve", path, f"--start=now+{LEAD_S}s", "--json", check=False).stdout
        return '"accepted"' in told

    site.cluster.wait_for("a promise", is_accepted, ROUND_S, lambda: told)
    answer = json.loads(told)
    # The promise is written down first; the batch system has it a moment later.
    shown = ["scontrol", "show", "reservation", str(answer["name"])]
    site.cluster.wait_for(
        "the batch system's reservation",
        lambda: site.cluster.run(HEAD, shown, check=False).returncode == 0,
        ROUND_S,
    )
    return str(answer["name"]), float(answer["start_s"])


def run(way: ImageWay, image: ServedImage, jobs: int, width: int) -> WayCost:
    """Hand the jobs in at once, and wait until all have ended."""
    cluster = way.cluster
    before = traffic_of(cluster)
    called_s = {}
    for _ in range(jobs):
        now_s = time_ns() / 1e9
        called_s[cluster.sbatch(way.script, *way.options, user="ada")] = now_s
    ready_s = {job: max(said_s(cluster, job, width)) for job in called_s}
    waited_for_end(cluster)
    started_s = starts_s(cluster)
    served = traffic_of(cluster).since(before).served_bytes
    return WayCost(
        [ready_s[job] - (way.from_s or since_s) for job, since_s in called_s.items()],
        [ready_s[job] - started_s[job] for job in called_s],
        served,
        image.size_bytes,
    )


def said_s(cluster: SlurmCluster, job: str, width: int) -> list[float]:
    """When each node of a job could read its image."""
    path = path_of(cluster, HEAD, f"{cluster.people.of('ada').home}/slurm-{job}.out")

    def said() -> str:
        return path.read_text() if path.exists() else ""

    def told() -> str:
        show = cluster.run(HEAD, ["scontrol", "show", "job", job], check=False).stdout
        return f"{said()}\n{show}\n{cluster.logs()}"

    cluster.wait_for(f"job {job}", lambda: len(said().splitlines()) >= width, ROUND_S, told)
    return [float(line) for line in said().splitlines()]


def waited_for_end(cluster: SlurmCluster) -> None:
    argv = ["squeue", "--all", "--noheader", "--states=pending,configuring,running,completing"]
    cluster.wait_for(
        "all jobs to end", lambda: not cluster.run(HEAD, argv).stdout.strip(), ROUND_S, cluster.logs
    )


def table(found: dict[tuple[str, str], list[WayCost]]) -> dict[tuple[str, str], WayCost]:
    """Print what was measured; the rounds of each way as one."""
    rows = {}
    for key, outcomes in found.items():
        rows[key] = WayCost(
            [each for outcome in outcomes for each in outcome.delays_s],
            [each for outcome in outcomes for each in outcome.clocks_s],
            sum(outcome.served_bytes for outcome in outcomes),
            sum(outcome.needed_bytes for outcome in outcomes),
        )
    print("delay until the image can be read, in s, and the part of it that the user's time limit pays;")
    print("bytes that the server of images has sent, against the image's own, once")
    for load_name in LOADS:
        print(f"{load_name:23} {'delay':>14} {'worst':>7} {'paid':>13} {'worst':>7} {'sent':>12}")
        for way in WAYS:
            row = rows[load_name, way]
            print(
                f"  {way:22} {statistics.median(row.delays_s):14.2f} {max(row.delays_s):7.2f} "
                f"{statistics.median(row.clocks_s):13.2f} {max(row.clocks_s):7.2f} "
                f"{row.served_bytes / 1e6:6.0f} MB {row.served_bytes / row.needed_bytes:5.2f} x"
            )
    return rows


def draw(rows: dict[tuple[str, str], WayCost], path: Path, megabytes: int) -> None:
    """Bars of delays, of which the dark part is paid by the user; beside it bytes, in images."""
    from outrider.sim.plots.style import BLUE, GREEN, ORANGE, grid, new_figure, save, title

    figure = new_figure(10, 5.6)
    all_axes = figure.subplots(len(LOADS), 2, sharey=True, sharex="col")
    for (left, right), load_name in zip(all_axes, LOADS, strict=True):
        places = range(len(WAYS), 0, -1)
        shown = [rows[load_name, way] for way in WAYS]
        delays = [statistics.median(row.delays_s) for row in shown]
        paid = [statistics.median(row.clocks_s) for row in shown]
        worst = [max(row.delays_s) for row in shown]
        sent = [row.served_bytes / row.needed_bytes for row in shown]
        left.barh(places, delays, 0.62, color=BLUE, label="until the image can be read, median")
        left.barh(places, paid, 0.3, color=ORANGE, label="of it, in the user's own time")
        left.plot(worst, places, "|", color="black", markersize=12, label="worst job")
        right.barh(places, sent, 0.62, color=GREEN)
        for place, delay_s, worst_s, times in zip(places, delays, worst, sent, strict=True):
            left.annotate(f" {delay_s:.1f} s", (max(delay_s, worst_s), place), va="center")
            right.annotate(f" {times:.1f}", (times, place), va="center")
        left.set_yticks(list(places), WAYS)
        left.set_title(load_name, loc="left")
        grid(left)
        grid(right)
    left.set_xlabel("seconds from sbatch, or from the reservation's start")
    right.set_xlabel("images sent by the server")
    all_axes[0][0].legend(loc="lower right")
    for axes in (all_axes[0][0], all_axes[0][1]):
        low, high = axes.get_xlim()
        axes.set_xlim(low, 1.12 * high)
    title(
        figure,
        "Until a job can read its image",
        f"measured: {NODES} nodes, links of {RATE_BITS_PER_S / 1e6:g} Mbit/s, images of {megabytes} MB",
    )
    save(figure, path)


if __name__ == "__main__":
    raise SystemExit(main())
