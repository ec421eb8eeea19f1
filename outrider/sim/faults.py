"""What can go wrong in a simulated site: nodes that fail, links that are slow for a while."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFault:
    """A node is away in [at_s, until_s). What ran on it is lost; its disk is not."""

    node: str
    at_s: int
    until_s: int

    def __post_init__(self) -> None:
        if self.until_s <= self.at_s:
            raise ValueError(
                f"node {self.node} fails at {self.at_s} and is back at {self.until_s}: not later"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkFault:
    """Transfers that begin in [at_s, until_s) take `percent` more time than planned."""

    at_s: int
    until_s: int
    percent: int

    def __post_init__(self) -> None:
        if self.until_s <= self.at_s or self.percent < 1:
            raise ValueError(
                f"a link fault of {self.percent} % in [{self.at_s}, {self.until_s}) is not possible"
            )


Fault = NodeFault | LinkFault
