"""The policies that the configuration names, checked against it."""

from __future__ import annotations

from outrider.metadata.errors import MetadataError
from outrider.metadata.leases import admission_policies, price_list
from outrider.metadata.policies import Policies, read_policies
from outrider.service.daemon.configuration.model import Config
from outrider.service.daemon.errors import ServiceInputError


class PolicyBook:
    """The policies in force, which may be read anew while the service runs."""

    def __init__(self, path: str | None, *, has_holders: bool = False, unmoved: str = "") -> None:
        """`has_holders`: whether machines move in holder jobs here; `unmoved`: why none can leave a node that
        is overloaded, and what to do about it."""
        self._path = path
        self._has_holders, self._unmoved = has_holders, unmoved
        self.current = self._read()

    def read_again(self) -> Policies:
        """Raises MetadataError or OSError, and then the old ones stay in force."""
        self.current = self._read()
        return self.current

    def _read(self) -> Policies:
        if self._path is None:
            return Policies.model_validate({"version": 1, "rules": [{"name": "everybody"}]})
        policies = read_policies(self._path)
        if policies.holder_account is not None and not self._has_holders:
            raise MetadataError(
                f"{self._path}: holder_account has no effect, since no machine moves in a holder job here: "
                "leave it out, or set jobs.live in outriderd.yaml"
            )
        if policies.overbook is not None and self._unmoved:
            raise MetadataError(f"{self._path}: overbook has no effect, since {self._unmoved}")
        if policies.leases is not None:
            if policies.leases.first_slice_s is not None:
                raise MetadataError(
                    f"{self._path}: leases.first_slice: the service suspends jobs for reservations alone, "
                    "not for others that wait: leave it out, and try it with outrider sim run --site-policy"
                )
            # A policy of the site's own that is not installed is a fault of the file, and not of a request.
            admission_policies(policies.leases)
            if policies.leases.pricing is not None:
                price_list(policies.leases.pricing)
        return policies


def read_policy_book(config: Config) -> PolicyBook:
    """The policies that the configuration names. Raises ServiceInputError."""
    try:
        return PolicyBook(
            config.policies,
            has_holders=config.jobs.live and config.backend.kind in ("slurm", "gridengine"),
            unmoved=config.unmoved,
        )
    except MetadataError as error:
        raise ServiceInputError(f"the policies are not right:\n{error}") from error
    except OSError as error:
        raise ServiceInputError(
            f"the policies {config.policies} cannot be read ({error.strerror}): see who may"
        ) from error
