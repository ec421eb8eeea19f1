"""All that a service acts upon, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.rms.base import BatchSystem
from outrider.service.nodes.promised import Ceiling, Promised
from outrider.service.ports import LoginBook, Nodes, Resolve, Sign


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """All that a service acts upon."""

    rms: BatchSystem
    nodes: Nodes
    resolve: Resolve
    promised: Promised = field(default_factory=Promised)
    sign: Sign | None = None
    """None: jobs carry no tickets."""
    ceiling: Ceiling | None = None
    """Told of what nodes report."""
    logins: LoginBook | None = None
    """None: users cannot log in at registries."""
