"""What a configuration says of the links over which images come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit, urlunsplit

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from outrider.core.links.network import Network, NetworkLink
from outrider.metadata.fields import Duration, Name, Size
from outrider.metadata.notation.hostlists import expand
from outrider.metadata.validation import Section, contradiction
from outrider.service.daemon.configuration.images import HostName
from outrider.service.daemon.configuration.types import Rate, Reserve, given, mapping_of_names

BEST_EFFORT_SHARE = 10
SITE_LINK = "site"


def _node_names(value: object) -> tuple[str, ...]:
    return expand(value if isinstance(value, str) else str(value))


NodeNames = Annotated[
    tuple[str, ...],
    BeforeValidator(_node_names),
    WithJsonSchema({"type": "string", "examples": ["rack1n[01-40]"]}),
]


class SourceSection(Section):
    """A server of images, or several behind one link."""

    hosts: tuple[HostName, ...] = Field(
        min_length=1, strict=False, description="the hosts of its images' addresses, `HOST` or `HOST:PORT`"
    )
    rate_bytes_per_s: Size = Field(alias="rate", description="bytes a second that it can send")
    mirror_of: Name | None = Field(
        None,
        description="another source whose public images (http, https) this one has as well, under the "
        "same paths of its first host: for a reservation nodes fetch them from whichever has "
        "time",
    )


class GroupSection(Section):
    """Nodes behind one link."""

    nodes: NodeNames = Field(description="the nodes, as in `n[1-40]`")
    rate_bytes_per_s: Size = Field(alias="rate", description="bytes a second of their link")


class LinkSection(Section):
    """The link over which images come, and how it is used."""

    rate_bytes_per_s: Size = Field(
        125_000_000,
        alias="rate",
        description="bytes a second that all transfers for reservations may take together",
        json_schema_extra=given("125MB"),
    )
    best_effort_rate_bytes_per_s: Rate | None = Field(
        None,
        alias="best_effort_rate",
        description="bytes a second of rate that best-effort jobs always have; reservations are planned "
        "with the rest. 0: their images come only while none comes for a reservation; without "
        "it a tenth of rate",
    )
    urgent_rate_bytes_per_s: Size | None = Field(
        None,
        alias="urgent_rate",
        description="bytes a second for a transfer whose reservation is endangered; without it no more "
        "than planned",
    )
    reserve_s: Reserve = Field(
        600,
        alias="reserve",
        description="how long before its latest start a transfer begins if the link is idle; "
        "at-once: as soon as it is",
        json_schema_extra=given("10m"),
    )
    shipping: Literal["relay", "per-node"] = Field(
        "relay", description="relay: nodes pass an image on while it arrives; per-node: each fetches its own"
    )
    spread_s: Duration = Field(
        10,
        alias="spread",
        description="added to the planned time of each transfer, for everything but sending",
        json_schema_extra=given("10s"),
    )
    transfer_rate_bytes_per_s: Size | None = Field(
        None,
        alias="transfer_rate",
        description="bytes a second of one transfer, if links carry several at a time; without it each "
        "carries one",
    )
    node_rate_bytes_per_s: Size | None = Field(
        None, alias="node_rate", description="bytes a second that one node's network card and disk can take"
    )
    sources: Annotated[dict[Name, SourceSection], BeforeValidator(mapping_of_names)] = Field(
        default_factory=dict, description="servers of images with a link of their own; others use rate"
    )
    groups: Annotated[dict[Name, GroupSection], BeforeValidator(mapping_of_names)] = Field(
        default_factory=dict, description="nodes behind a link of their own: racks, clusters"
    )

    @model_validator(mode="after")
    def _is_more(self) -> Self:
        urgent = self.urgent_rate_bytes_per_s
        if urgent is not None and urgent < self.rate_bytes_per_s:
            contradiction(
                "is less than rate: what is in danger would get less than what is not", "urgent_rate"
            )
        if 2 * self.best_effort_bytes_per_s > self.rate_bytes_per_s:
            contradiction("is more than half of rate: reservations need the larger part", "best_effort_rate")
        return self

    @model_validator(mode="after")
    def _are_apart(self) -> Self:
        for what, found in (("host", self._hosts()), ("node", self._nodes())):
            twice = next((name for name, times in Counter(found).items() if times > 1), None)
            if twice is not None:
                contradiction(
                    f"{twice} is given twice: a {what} has one link",
                    "sources" if what == "host" else "groups",
                )
        if set(self.sources) & set(self.groups):
            contradiction("has a name that is one of sources, too: give each link its own", "groups")
        return self

    @model_validator(mode="after")
    def _mirror_sources(self) -> Self:
        for name, each in self.sources.items():
            if each.mirror_of is None:
                continue
            mirrored = self.sources.get(each.mirror_of)
            if mirrored is None or mirrored.mirror_of is not None:
                contradiction(
                    f"{name} is a mirror of {each.mirror_of}, which is not a source, or is a mirror itself: "
                    "name the source that images' addresses name",
                    "sources",
                )
        return self

    def _hosts(self) -> Iterator[str]:
        for each in self.sources.values():
            yield from each.hosts

    def _nodes(self) -> Iterator[str]:
        for each in self.groups.values():
            yield from each.nodes

    @property
    def best_effort_bytes_per_s(self) -> int:
        """What is set aside for best effort. Some always is, unless a site says otherwise: reservations
        that follow one another for hours would stop all other users' jobs for as long."""
        given_rate = self.best_effort_rate_bytes_per_s
        return self.rate_bytes_per_s // BEST_EFFORT_SHARE if given_rate is None else given_rate


def network_of(link: LinkSection) -> Network | None:
    """The site's links with what reservations may take of each; None if there is the one alone."""
    if not (link.sources or link.groups or link.transfer_rate_bytes_per_s or link.node_rate_bytes_per_s):
        return None
    source_of = {host: name for name, each in link.sources.items() for host in each.hosts}

    def share_of(rate_bytes_per_s: int) -> int:
        return rate_bytes_per_s * link.best_effort_bytes_per_s // link.rate_bytes_per_s

    def made(name: str, rate_bytes_per_s: int) -> NetworkLink:
        share = share_of(rate_bytes_per_s)
        one = link.transfer_rate_bytes_per_s or rate_bytes_per_s
        return NetworkLink(
            name=name,
            rate_bytes_per_s=max(1, rate_bytes_per_s - share),
            lanes=max(1, rate_bytes_per_s // one),
            beside_bytes_per_s=share,
        )

    def source(uri: str) -> str:
        parts = urlsplit(uri)
        return source_of.get(parts.netloc.rpartition("@")[2]) or source_of.get(parts.hostname or "") or ""

    def at_mirror(uri: str, source: str) -> str:
        parts = urlsplit(uri)
        # What stands behind a question mark may be a signature, which is for one host.
        if parts.scheme not in ("http", "https") or parts.query or parts.username:
            return ""
        return urlunsplit(parts._replace(netloc=link.sources[source].hosts[0]))

    groups = {name: made(name, each.rate_bytes_per_s) for name, each in link.groups.items()}
    sources = {name: made(name, each.rate_bytes_per_s) for name, each in link.sources.items()}
    mirrors: dict[str, tuple[NetworkLink, ...]] = {}
    for name, each in link.sources.items():
        if each.mirror_of is not None:
            mirrors[each.mirror_of] = (*mirrors.get(each.mirror_of, ()), sources[name])
    node = link.node_rate_bytes_per_s
    return Network(
        site=made(SITE_LINK, link.rate_bytes_per_s),
        sources=sources,
        mirrors=mirrors,
        groups={node: groups[name] for name, each in link.groups.items() for node in each.nodes},
        source_of=source,
        address_at=at_mirror,
        node_rate_bytes_per_s=None if node is None else max(1, node - share_of(node)),
        node_beside_bytes_per_s=0 if node is None else share_of(node),
        spread_s=link.spread_s,
    )
