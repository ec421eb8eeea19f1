"""What all messages of `cachemgr.protocol` have in common."""

from __future__ import annotations


class ProtocolMessage:
    """Compared and shown by its fields. `dataclass` would write these methods anew for each message, which
    takes longer than asking a daemon does: every command would wait for that at its start."""

    def __init_subclass__(cls) -> None:
        # Else `dataclass` makes one of the signature, which it has to find out.
        cls.__doc__ = cls.__doc__ or cls.__name__

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({shown})"
