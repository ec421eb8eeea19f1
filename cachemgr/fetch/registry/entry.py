"""How a registry lets somebody in: what it demands, and the answer to a server of tokens' question."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import urlencode

from cachemgr.fetch.faults import SourceFault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.fetch.registry.references import Reference

MOST_TOKEN_BYTES = 1 << 20
MOST_TOKEN_CHARACTERS = 32_768


@dataclass(frozen=True)
class Demand:
    """What a registry wants: a token of the server at `realm`, or (without one) a name and a password."""

    realm: str = ""
    service: str = ""


def read_demand(header: str) -> Demand | None:
    """What the header WWW-Authenticate demands; a token rather than a password. None if neither."""
    found: dict[str, dict[str, str]] = {}
    current = ""
    pieces = header.split('"')
    # Every second piece was in quotes; before it stand the name of its value, and maybe a new scheme.
    for before, value in zip(pieces[::2], [*pieces[1::2], ""]):
        words = before.replace(",", " ").split()
        current = next((word.lower() for word in words if "=" not in word), current)
        values = found.setdefault(current, {})
        if words and words[-1].endswith("="):
            values[words[-1][:-1].lower()] = value
    if "bearer" in found and found["bearer"].get("realm"):
        return Demand(found["bearer"]["realm"], found["bearer"].get("service", ""))
    return Demand() if "basic" in found else None


def token_uri(demand: Demand, reference: Reference) -> str:
    """Where a token is asked for that lets read this repository and do nothing else."""
    scope = f"repository:{reference.repository}:pull" if reference.repository else ""
    query = {"service": demand.service, "scope": scope}
    divider = "&" if "?" in demand.realm else "?"
    return demand.realm + divider + urlencode({name: value for name, value in query.items() if value})


def read_token(body: bytes) -> str:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise SourceFault("the server of tokens answers with something that is not JSON") from error
    token = (found.get("token") or found.get("access_token")) if isinstance(found, dict) else None
    if not isinstance(token, str) or not token.isascii() or not token.isprintable():
        raise SourceFault("the server of tokens gives no token", is_final=True)
    if len(token) > MOST_TOKEN_CHARACTERS:
        raise SourceFault(f"the server of tokens gives one of {len(token)} characters", is_final=True)
    return token
