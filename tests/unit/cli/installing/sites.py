"""Sites for tests: files of Slurm's in memory, read as the installer reads them."""

from __future__ import annotations

from collections.abc import Mapping

from outrider.cli.installing.slurm.plan import PARTS, UNLESS_WANTED, SiteTexts, SlurmPlan, plan
from outrider.cli.installing.slurm.siteconf import SiteConf, read_site

CONF = "/etc/slurm/slurm.conf"
ALL = frozenset(PARTS) - frozenset(UNLESS_WANTED)
VERSION = (22, 5, 8)


def site(text: str, **others: str) -> SiteConf:
    """A site whose slurm.conf says this; others are files beside it, by name without their `.conf`."""
    return site_of({CONF: text, **{f"/etc/slurm/{name}.conf": each for name, each in others.items()}})


def site_of(files: Mapping[str, str]) -> SiteConf:
    def read(path: str) -> bytes:
        if path not in files:
            raise FileNotFoundError(2, "No such file or directory", path)
        return files[path].encode("utf-8", "surrogateescape")

    return read_site(CONF, read)


def planned(
    found: SiteConf, *, parts: frozenset[str] = ALL, version: tuple[int, ...] = VERSION,
    submit: str | None = None,
) -> SlurmPlan:  # fmt: skip
    texts = SiteTexts(submit=submit, cli=None, plugstack=None)
    return plan(found, texts, parts, version)


def after(found: SlurmPlan, path: str = CONF) -> str:
    """What a file will say; it has to be among those that are changed."""
    return {each.path: each.after for each in found.edits}[path]
