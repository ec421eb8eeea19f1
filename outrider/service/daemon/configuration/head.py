"""One of several heads."""

from __future__ import annotations

from pydantic import Field

from outrider.metadata.fields import Name
from outrider.metadata.validation import Section
from outrider.service.daemon.configuration.types import Address


class HeadSection(Section):
    """One of the heads that share a database. They take the lead in turn."""

    name: Name | None = Field(None, description="the head's name; without it the machine's name")
    address: Address | None = Field(
        None, description="address and port at which users' programs reach it; without it tcp.listen"
    )
