"""What is answered about logins at registries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginView:
    """A login at a registry, without its password. Without a `user` it cannot be read: log in anew."""

    host: str
    user: str
    since_s: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginList:
    logins: tuple[LoginView, ...]
