"""The service that the command's tests ask, for tests of the client."""

from __future__ import annotations

from tests.unit.cli.conftest import service

__all__ = ["service"]
