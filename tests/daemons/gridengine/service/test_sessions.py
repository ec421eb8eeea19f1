"""`qrsh` with an image: held until it is there, led to it, and begun."""

from __future__ import annotations

from testbed.batchcluster import HEAD
from testbed.gridenginesite import GridEngineSite
from tests.daemons.gridengine.service.jobs import MB

# A session whose user does not hang up.
PRESENT = 'exec timeout --kill-after=1 50 qrsh "$@" < <(exec sleep 60 2>/dev/null)'


def test_session_begins_with_its_image_when_that_is_there(site: GridEngineSite) -> None:
    image = site.image("session.qcow2", 5 * MB)
    named = f"OUTRIDER=image={image.uri};digest={image.digest}"
    command = ["sh", "-c", "'echo has $OUTRIDER_IMAGE; head -c3 $OUTRIDER_IMAGE'"]

    done = site.cluster.run(
        HEAD, ["bash", "-c", PRESENT, "bash", "-now", "n", "-ac", named, *command], user="ada", check=False
    )

    assert done.returncode == 0, (done, site.logs())
    assert done.stdout.startswith("has /")
    assert done.stdout.endswith("\nQFI")
    assert set(site.arrived_s(image)) != set()
