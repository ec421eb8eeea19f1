"""Reservations of a testbed's users, whatever batch system is below: asked for, and looked at."""

from __future__ import annotations

import json
from typing import Any

from testbed.batchcluster import HEAD
from testbed.clustersite import ClusterSite, ServedImage

Site = ClusterSite[Any]


def workspace(site: Site, name: str, content_bytes: int) -> ServedImage:
    """A workspace's file in ada's home, and its image."""
    image = site.image(f"{name}.qcow2", content_bytes)
    text = (
        f"version: 1\nmetadata: {{name: {name}, image: {{uri: '{image.uri}', digest: '{image.digest}'}}}}\n"
        "deployment: {nodes: 1, duration: 10m}\n"
    )
    site.cluster.write(HEAD, f"{site.home()}/{name}.yaml", text)
    return image


def reserve(site: Site, name: str, *options: str, user: str = "ada") -> dict[str, object]:
    """What `outrider reserve` answers for a workspace's file, yes or no."""
    path = f"{site.home(user)}/{name}.yaml"
    done = site.outrider("reserve", path, *options, "--json", user=user, check=False)
    assert done.stdout, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def shown(site: Site, name: str, user: str = "ada") -> dict[str, object]:
    answer = json.loads(site.outrider("show", name, "--json", user=user).stdout)
    assert isinstance(answer, dict)
    return answer


def state(site: Site, name: str) -> object:
    return site.service().show(name).reservation.state


def wait_reservation(site: Site, name: str, *states: str) -> None:
    site.cluster.wait_for(
        f"{name} to be {states}",
        lambda: site.service().show(name).reservation.state in states,
        logs=site.logs,
    )
