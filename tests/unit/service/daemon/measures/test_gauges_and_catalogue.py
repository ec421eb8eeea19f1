"""Numbers made of what is said anyway, and for whom the images of the catalogue are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from outrider.service.daemon.configuration.files import load_config
from outrider.service.daemon.measures.gauges import PoolGauges, meter_commits, show_status
from outrider.service.daemon.measures.metrics import Metrics
from outrider.service.daemon.world.catalogue import catalogue_of
from outrider.service.images.catalogue import Catalogue
from outrider.service.ports import ImageTrouble, NodeReport, Readers
from outrider.store.sqlite.store import SqliteStore
from tests.unit.service.daemon.fakes import status, written

D = "sha256:" + "0" * 64


def report(node: str, used_bytes: int, limit_bytes: int) -> NodeReport:
    return NodeReport(node=node, at_s=0, limit_bytes=limit_bytes, used_bytes=used_bytes)


def test_pools_are_added_up_with_each_nodes_last_word() -> None:
    metrics = Metrics()
    pools = PoolGauges(metrics)
    for each in (report("n1", 10, 100), report("n2", 50, 100), report("n1", 30, 200)):
        pools.note(each)
    pools.show()

    assert metrics.value("outrider_pools_used_bytes") == 80
    assert metrics.value("outrider_pools_limit_bytes") == 300
    assert metrics.value("outrider_pool_most_used_ratio") == 0.5


def test_pools_that_have_not_reported_are_no_number() -> None:
    metrics = Metrics()
    PoolGauges(metrics).show()

    assert metrics.value("outrider_pool_most_used_ratio") == 0


def test_status_becomes_gauges() -> None:
    metrics = Metrics()
    now = replace(
        status(now_s=1000),
        last_look_s=940,
        nodes=10,
        nodes_up=8,
        nodes_away=1,
        reservations={"ready": 3, "endangered": 0},
        transfers_waiting=4,
        link_busy_until_s=1100,
        effects_waiting=2,
    )
    show_status(now, metrics)

    assert metrics.value("outrider_sight_age_seconds") == 60
    assert [metrics.value("outrider_nodes", state) for state in ("up", "not-up", "away")] == [8, 2, 1]
    assert metrics.value("outrider_reservations", "ready") == 3
    assert metrics.value("outrider_transfers", "waiting") == 4
    assert metrics.value("outrider_link_busy_ratio") == 1
    assert metrics.value("outrider_effects_waiting") == 2


def test_commit_alone_is_measured(tmp_path: Path) -> None:
    metrics = Metrics()
    times = iter([5.0, 7.0])
    with SqliteStore.create(tmp_path / "s.sqlite", 1) as store:
        meter_commits(store, metrics, lambda: next(times))
        with store.promise() as promise:
            promise.set("a", "b")

    assert metrics.value("outrider_store_commit_seconds_count") == 1
    assert metrics.value("outrider_store_commit_seconds_sum") == 2


def catalogue(folder: Path, readers: str = "") -> Catalogue:
    text = f"images: {{ubuntu: {{uri: 'https://h/u.img', digest: '{D}', size: 7{readers}}}}}\n"
    path = written(folder / "o.yaml", f"version: 1\nbackend: {{kind: twin}}\n{text}")
    return catalogue_of(load_config([path], {}))


def test_image_for_some_is_nobody_elses_business(tmp_path: Path) -> None:
    images = catalogue(tmp_path, ", readers: {users: [root]}")

    assert images.readers_of("ubuntu") == Readers(uids=(0,))
    with pytest.raises(ImageTrouble, match="there is no image"):
        images.find("ubuntu", is_private=True, uid=1000, gids=())
