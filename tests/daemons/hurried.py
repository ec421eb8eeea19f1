"""Sites on which the line at a user's job changes sooner, since most of what tests wait for is said there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import outrider
from outrider.service.desk.jobs import notes
from testbed.clustersite import PROGRAMS, ClusterSite
from testbed.gridenginesite import GridEngineSite
from testbed.site import OutriderSite
from testbed.slurm import HEAD

EVERY_S = 2
CHANGE = 'grep -q "^EVERY_S = $1$" "$3" && sed -i "s/^EVERY_S = $1$/EVERY_S = $2/" "$3"'


class HurriedSlurmSite(OutriderSite):
    """A Slurm with Outrider on it."""

    def install_head(self) -> None:
        super().install_head()
        hurry(self)


class HurriedGridEngineSite(GridEngineSite):
    """A Grid Engine with Outrider on it."""

    def install_head(self) -> None:
        super().install_head()
        hurry(self)


def hurry(site: ClusterSite[Any]) -> None:
    """In the copy that was installed: how often lines change is no setting of a site."""
    module = Path(notes.__file__).relative_to(Path(outrider.__file__).parents[1])
    site.cluster.run(
        HEAD, ["/bin/sh", "-c", CHANGE, "sh", str(notes.EVERY_S), str(EVERY_S), f"{PROGRAMS}/{module}"]
    )
