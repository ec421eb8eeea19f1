"""What the command line says of Slurm."""

from __future__ import annotations

from outrider.cli.installing.common.port import CommandOption, SystemOptions

_EPILOG = """\
Without --apply nothing is changed: the lines are shown, for whoever wants to write them. With it,
the head gets Outrider's files. Once "outrider nodes deploy" has brought the hooks to all nodes, the site's
own files get their lines: marked, beside what is there, with a copy of each file as it was.
--remove takes all of it out again, to the byte; the store of promises stays.

examples:
  outrider init slurm
  outrider init slurm --apply
  outrider init slurm --apply --with-prolog-slurmctld
  outrider init slurm --remove
"""
OPTIONS = SystemOptions(
    summary="install beside Slurm, or show what that changes",
    epilog=_EPILOG,
    parts={
        "submit-filter": "the filter in slurmctld, without which jobs are not managed",
        "prolog": "the hook that gives a job its image",
        "epilog": "the hook that takes the image away after a job",
        "task-prolog": "the hook that tells a job where its image is",
        "prolog-slurmctld": "the last look before a job starts, on the head",
        "slurm-conf": "the lines of slurm.conf",
        "unit": "the unit of systemd",
    },
    of_site=(
        CommandOption(
            name="--conf", metavar="FILE", help="the site's slurm.conf (SLURM_CONF, or the usual places)"
        ),
    ),
    of_init=(
        CommandOption(
            name="--with-cli-filter",
            help="add the filter of sbatch and srun, too: every machine on which users submit has to have it",
        ),
        CommandOption(
            name="--with-prolog-slurmctld",
            help="add a last look on the head before a job starts, which costs every job of the site 0.1 s",
        ),
        CommandOption(
            name="--controllers-are-ready",
            help="the other machines of SlurmctldHost have Outrider's files: init --apply was run there",
        ),
        CommandOption(
            name="--spank", metavar="FILE", help="the compiled plugin for --workspace=, if it is wanted"
        ),
    ),
)
