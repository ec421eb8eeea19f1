"""One user's images, wherever they come from and however many, do not keep another user's one away."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.site import OutriderSite
from testbed.slurm import HEAD, IMAGES, IMAGES_FOLDER
from tests.daemons.reservations import reserve, shown, wait_reservation, workspace
from tests.daemons.slurm.service.failing import MB, arriving_bytes, hold_back, let_go, wait_arriving
from tests.daemons.slurm.service.jobs import arrived_s, ended, script, wait_in_slurm

MANY = 16


def test_one_job_does_not_wait_for_all_that_another_user_has_asked_for(site: OutriderSite) -> None:
    many = [site.image(f"many{number}.qcow2", 12 * MB + number) for number in range(MANY)]
    one = site.image("one.qcow2", 6 * MB)
    first = [site.submit(script(image), "-t1") for image in many]

    ended(site, site.submit(script(one), "-t1", user="bob"))
    # Its job may have waited for Slurm afterwards.
    one_s = min(arrived_s(site, one).values())
    before = [image.name for image in many if any(at_s < one_s for at_s in arrived_s(site, image).values())]
    site.cluster.run(HEAD, ["scancel", *first])

    assert len(before) <= MANY // 2, before


def test_job_whose_server_stands_still_does_not_keep_the_link(site: OutriderSite) -> None:
    stuck, free = site.image("stuck.qcow2", 20 * MB), site.image("free.qcow2", 5 * MB)
    hold_back(site, stuck)
    first = site.submit(script(stuck), "-t1")
    wait_arriving(site, stuck)

    second = site.submit(script(free), "-t1")
    found = ended(site, second)
    let_go(site, stuck)

    assert found.state == "COMPLETED"
    assert ended(site, first).state == "COMPLETED"


def test_reservation_whose_server_stands_still_does_not_keep_the_link(site: OutriderSite) -> None:
    stuck, free = workspace(site, "stood", 40 * MB), site.image("free2.qcow2", 30 * MB)
    hold_back(site, stuck)
    name = str(reserve(site, "stood", "--start=now+5minutes", "-t10m")["name"])
    wait_arriving(site, stuck)

    found = ended(site, site.submit(script(free), "-t1", user="bob"))
    let_go(site, stuck)
    wait_reservation(site, name, "ready")
    site.outrider("cancel", name)
    wait_in_slurm(site, name, is_there=False)

    assert found.state == "COMPLETED"


def test_reservation_of_an_image_that_was_replaced_says_what_came_and_fetches_no_more(
    site: OutriderSite,
) -> None:
    image = workspace(site, "replaced", 20 * MB)
    hold_back(site, image)
    name = str(reserve(site, "replaced", "--start=now+5minutes", "-t10m")["name"])
    node = wait_arriving(site, image)
    path = f"{IMAGES_FOLDER}/{image.name}"
    last = ["dd", "if=/dev/urandom", f"of={path}", "bs=1k", "count=1", "conv=notrunc", "oflag=append"]
    site.cluster.run(IMAGES, ["truncate", "-s", "-1K", path])
    site.cluster.run(IMAGES, last)
    let_go(site, image)
    wait_reservation(site, name, "endangered")
    told = shown(site, name)["reservation"]
    free = site.image("free3.qcow2", 5 * MB)
    found = ended(site, site.submit(script(free), "-t1", user="bob"))
    later = shown(site, name)["reservation"]
    site.outrider("cancel", name)
    wait_in_slurm(site, name, is_there=False)

    assert isinstance(told, Mapping)
    assert isinstance(later, Mapping)
    assert f"was promised as {image.digest} but what came is sha256:" in str(told["why"])
    assert (later["why"], later["nodes"]) == (told["why"], told["nodes"]) == (told["why"], node)
    assert found.state == "COMPLETED"
    assert arriving_bytes(site, node, image) == 0
