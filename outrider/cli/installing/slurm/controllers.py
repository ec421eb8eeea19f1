"""The machines on which slurmctld may run: what its settings name has to be on each of them."""

from __future__ import annotations

from outrider.cli.installing.slurm.siteconf import SiteConf

_KEYS = ("SlurmctldHost", "ControlMachine", "BackupController")
"""The last two are what older files say in the place of the first."""


def other_controllers(site: SiteConf, host: str) -> tuple[str, ...]:
    """All but this machine, in the order in which they take over."""
    found = [name for key in _KEYS for each in site.all(key) for name in _names(each.value)]
    return tuple(dict.fromkeys(name for name in found if _short(name) != _short(host)))


def _names(value: str) -> list[str]:
    """`head1(10.0.0.1)` is head1; only the old settings name several at once."""
    return [name for each in value.split(",") if (name := each.partition("(")[0].strip())]


def _short(name: str) -> str:
    return name.partition(".")[0].lower()
