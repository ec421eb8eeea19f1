"""What the runs found: printed, as CSV beside the simulator's, and as figures."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.sim.experiments.figures import LEAD_AT_S, PUBLISHED_DEPLOYMENT_S, PUBLISHED_LEAD_GB

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Found = dict[str, Any]
GIGABYTE = 10**9
# Section 8.2 of the thesis gives these two for all instances; section 8.1 prints no numbers.
PUBLISHED = {
    (f"{trace}/{way}", "mean deployment"): PUBLISHED_DEPLOYMENT_S[trace][place]
    for trace in ("III", "IV")
    for place, way in enumerate(("no-pool", "pool"))
}
SUMMARY = (
    "run", "figure", "trace", "way", "quantity", "unit", "physical", "simulated", "difference_percent",
    "simulated_as_measured", "difference_as_measured_percent", "thesis",
)  # fmt: skip
RUNS = ("run", "factor", "link_bytes_per_s", "start_delay_s", "jobs_started", "took_s", "load")


def summary(found: Iterable[Found]) -> Iterator[Found]:
    """A row for each quantity of each run; the leads of pools last."""
    every = list(found)
    for each in every:
        for quantity in each["quantities"]:
            yield _row(each, quantity)
    for ahead, behind in _pairs(every):
        values = {
            key: _lead(ahead[rows], behind[rows])
            for key, rows in (("real", "rows"), ("simulated", "simulated_rows"))
        }
        name = f"lead of the pools at {LEAD_AT_S} s"
        quantity = {"name": name, "unit": "GB", **values, "fitted": values["simulated"]}
        yield {**_row(ahead, quantity), "thesis": PUBLISHED_LEAD_GB[ahead["trace"]]}


def print_all(found: Sequence[Found]) -> None:
    print(f"{'run':22} {'':38} {'hosts':>9} {'simulator':>17} {'as measured':>17} {'thesis':>8}")
    for row in summary(found):
        print(
            f"{row['run']:22} {row['quantity'] + ' (' + row['unit'] + ')':38} {row['physical']:9.1f} "
            f"{row['simulated']:9.1f} {_signed(row['difference_percent']):>7} "
            f"{row['simulated_as_measured']:9.1f} {_signed(row['difference_as_measured_percent']):>7} "
            f"{row['thesis']:>8}"
        )
    for each in found:
        print(
            f"{each['name']:22} link {each['link_bytes_per_s'] / 1e6:.2f} MB/s, jobs began after "
            f"{each['start_delay_s']:.1f} s, {each['took_s']:.0f} s at load {each['load']}"
        )
        for line in each["leftovers"]:
            print(f"{each['name']:22} LEFT BEHIND: {line}")


def write_all(found: Sequence[Found], folder: Path) -> None:
    """CSV in results/ of a folder, of which the site makes the tables of its page."""
    results = folder / "results"
    _write(results / "physical-summary.csv", SUMMARY, summary(found))
    runs = ({**{key: each[key] for key in RUNS[1:]}, "run": each["name"]} for each in found)
    _write(results / "physical-runs.csv", RUNS, runs)
    reserved = [each for each in found if "simulated_rows" not in each]
    deployed = [each for each in found if "simulated_rows" in each]
    for name, some in (("satisfaction", reserved), ("deployments", deployed)):
        if some:
            header = ("run", *some[0]["rows"][0])
            rows = ({"run": each["name"], **row} for each in some for row in each["rows"])
            _write(results / f"physical-{name}.csv", header, rows)


def series(rows: Sequence[Found]) -> list[tuple[float, float]]:
    """Gigabytes deployed so far."""
    points, deployed_bytes = [(0.0, 0.0)], 0
    for row in sorted(rows, key=lambda row: row["ready_s"]):
        deployed_bytes += row["size_bytes"]
        points.append((row["ready_s"], deployed_bytes / GIGABYTE))
    return points


def _pairs(found: Sequence[Found]) -> Iterator[tuple[Found, Found]]:
    """Traces that were run with and without pools."""
    by_name = {each["name"]: each for each in found}
    for trace in ("III", "IV"):
        if f"{trace}/pool" in by_name and f"{trace}/no-pool" in by_name:
            yield by_name[f"{trace}/pool"], by_name[f"{trace}/no-pool"]


def _lead(ahead: Sequence[Found], behind: Sequence[Found]) -> float:
    one, other = (
        max(gigabytes for at_s, gigabytes in series(rows) if at_s <= LEAD_AT_S) for rows in (ahead, behind)
    )
    return one - other


def _row(found: Found, quantity: Found) -> dict[str, Any]:
    real, simulated, fitted = quantity["real"], quantity["simulated"], quantity["fitted"]
    return {
        "run": found["name"],
        "figure": found["figure"],
        "trace": found["trace"],
        "way": found["way"],
        "quantity": quantity["name"],
        "unit": quantity["unit"],
        "physical": round(real, 2),
        "simulated": round(simulated, 2),
        "difference_percent": _percent(real, simulated),
        "simulated_as_measured": round(fitted, 2),
        "difference_as_measured_percent": _percent(real, fitted),
        "thesis": PUBLISHED.get((found["name"], quantity["name"]), ""),
    }


def _percent(real: float, simulated: float) -> float | None:
    if simulated == 0:
        return 0.0 if real == 0 else None
    return round(100 * (real / simulated - 1), 1)


def _signed(percent: float | None) -> str:
    return "" if percent is None else f"{percent:+.1f} %"


def _write(path: Path, header: Sequence[str], rows: Iterable[Found]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, header, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
