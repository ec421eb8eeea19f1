"""The machines on which slurmctld may run, as slurm.conf names them."""

from __future__ import annotations

import pytest

from outrider.cli.installing.slurm.controllers import other_controllers
from tests.unit.cli.installing.sites import site


@pytest.mark.parametrize(
    ("text", "host", "others"),
    [
        ("SlurmctldHost=head1\n", "head1", ()),
        ("SlurmctldHost=head1\n", "head1.example.org", ()),
        ("SlurmctldHost=head1(10.0.0.1)\nSlurmctldHost=head2(10.0.0.2)\n", "head1", ("head2",)),
        (
            "SlurmctldHost=head1\nslurmctldhost=HEAD2.example.org\nSlurmctldHost=head3\n",
            "head2",
            ("head1", "head3"),
        ),
        ("ControlMachine=head1\nBackupController=head2\n", "head2", ("head1",)),
        ("SlurmctldHost=cloud\n", "elsewhere", ("cloud",)),
        ("", "head1", ()),
    ],
)
def test_other_controllers_are_those_that_slurm_conf_names_beside_this_machine(
    text: str, host: str, others: tuple[str, ...]
) -> None:
    assert other_controllers(site(text), host) == others
