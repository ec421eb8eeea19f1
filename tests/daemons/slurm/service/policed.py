"""Nodes under policies of a test's own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from testbed.site import OutriderSite, site_cluster
from testbed.slurm import HEAD
from tests.daemons.slurm.service.conftest import (
    LINES,
    LINK_BYTES_PER_S,
    NODES,
    RATE_BITS_PER_S,
    TIMINGS,
    check_clean,
)
from tests.needs import need_slurm

PATH = "/etc/outrider/policies.yaml"


@contextmanager
def policed(
    request: pytest.FixtureRequest,
    policies: str,
    *,
    nodes: int = NODES,
    lines: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
) -> Iterator[OutriderSite]:
    """When its tests are over, nothing may be left anywhere."""
    need_slurm()
    version = os.environ.get("OUTRIDER_SLURM_VERSION") or None
    failed_before = request.session.testsfailed
    with site_cluster(
        nodes, rate_bits_per_s=RATE_BITS_PER_S, version=version, slurm_conf_lines=(*LINES, *lines)
    ) as cluster:
        cluster.write(HEAD, PATH, policies)
        made = OutriderSite(
            cluster,
            is_preloaded=True,
            link_bytes_per_s=LINK_BYTES_PER_S,
            pool="200MiB",
            settings={"timings": TIMINGS, "policies": PATH, **(settings or {})},
        )
        made.install()
        yield made
        if request.session.testsfailed == failed_before:
            check_clean(made)
