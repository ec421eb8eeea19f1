"""Asks Outrider's service: reserve, plan, wait, submit, list, show, cancel."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outrider_client.answers import Decision as Decision
    from outrider_client.answers import JobDetails as JobDetails
    from outrider_client.answers import JobView as JobView
    from outrider_client.answers import ReservationDetails as ReservationDetails
    from outrider_client.answers import ReservationView as ReservationView
    from outrider_client.answers import Status as Status
    from outrider_client.answers import Submitted as Submitted
    from outrider_client.errors import BrokenError as BrokenError
    from outrider_client.errors import ConflictError as ConflictError
    from outrider_client.errors import InputError as InputError
    from outrider_client.errors import LateError as LateError
    from outrider_client.errors import MissingPartError as MissingPartError
    from outrider_client.errors import NotAllowedError as NotAllowedError
    from outrider_client.errors import NotFoundError as NotFoundError
    from outrider_client.errors import OutriderError as OutriderError
    from outrider_client.errors import RefusedError as RefusedError
    from outrider_client.errors import UnavailableError as UnavailableError
    from outrider_client.errors import UnreachableError as UnreachableError
    from outrider_client.service import Outrider as Outrider
    from outrider_client.transport import FaultyRequestError as FaultyRequestError
    from outrider_client.wishes import Image as Image
    from outrider_client.wishes import WorkspaceText as WorkspaceText

__version__ = "0.1.0.dev0"

_FROM = {
    "answers": (
        "Decision", "JobDetails", "JobView", "ReservationDetails", "ReservationView", "Status", "Submitted",
    ),
    "errors": (
        "BrokenError", "ConflictError", "InputError", "LateError", "MissingPartError", "NotAllowedError",
        "NotFoundError", "OutriderError", "RefusedError", "UnavailableError", "UnreachableError",
    ),
    "service": ("Outrider",),
    "transport": ("FaultyRequestError",),
    "wishes": ("Image", "WorkspaceText"),
}  # fmt: skip
__all__ = sorted(name for names in _FROM.values() for name in names)


def __getattr__(name: str) -> object:
    """A name when it is first used: a command that asks nobody loads no HTTP."""
    for module, names in _FROM.items():
        if name in names:
            return getattr(import_module(f"outrider_client.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
