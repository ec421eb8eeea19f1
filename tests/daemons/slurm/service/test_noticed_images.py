"""Images that a script starts something in, where the site lets the filter notice them."""

from __future__ import annotations

from testbed.batchcluster import IMAGES, IMAGES_FOLDER
from testbed.site import OutriderSite
from testbed.slurm import HEAD
from tests.daemons.slurm.service.failing import fill
from tests.daemons.slurm.service.jobs import arrived_s, ended, script, seen

MB = 1_000_000
FILTER = "/etc/slurm/job_submit.lua"


def test_image_that_a_script_starts_is_brought_while_it_waits_and_holds_it_never(site: OutriderSite) -> None:
    image = site.image("noticed.sif", 12 * MB)
    # As a server has it that says what is at its addresses; a registry does by itself.
    digest = image.digest.removeprefix("sha256:")
    site.cluster.write(IMAGES, f"{IMAGES_FOLDER}/{image.name}.sha256", f"{digest}\n", mode=0o644)
    site.cluster.write(HEAD, FILTER, "outrider_hints = true\n" + site.cluster.read(HEAD, FILTER), mode=0o644)
    filled = [fill(site, node) for node in site.cluster.nodes]
    text = f"#!/bin/sh\n: apptainer exec {image.uri} true\necho ran\n"

    job = site.submit(text, "-t1", "--comment=mine")
    waits = seen(site, job)
    site.cluster.wait_for("its image to be on a node", lambda: bool(arrived_s(site, image)), logs=site.logs)
    site.cluster.run(HEAD, ["scancel", *filled])
    found = ended(site, job)

    assert (waits.state, waits.reason in ("Resources", "Priority", "None")) == ("PENDING", True), waits
    assert waits.comment == "mine"
    assert found.state == "COMPLETED"
    assert '"outrider-hint":' in found.admin_comment


def test_image_that_cannot_be_had_is_no_matter(site: OutriderSite) -> None:
    job = site.submit("#!/bin/sh\n: apptainer exec http://images:8000/none.sif true\n", "-t1")

    assert ended(site, job).state == "COMPLETED"


def test_what_a_job_says_itself_still_holds_it(site: OutriderSite) -> None:
    image = site.image("said.qcow2", 6 * MB)
    job = site.submit(script(image, ": apptainer exec http://images:8000/none.sif true"), "-t1")
    found = ended(site, job)

    assert found.state == "COMPLETED"
    assert arrived_s(site, image)[found.nodes] <= found.start_s
