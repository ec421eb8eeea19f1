"""A sweep's runs on a cluster: workers of Dask that are jobs of Slurm or Grid Engine (dask-jobqueue).

What the jobs ask for beside a core is dask-jobqueue's own configuration (queue, walltime, memory, the address
on which its scheduler listens). Runs of a worker that is lost are done again by others, and a lost worker is
replaced; each run writes its result itself, so the folder has to be seen from every node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outrider.sim.experiments.parallel import Progress

ENGINES = {"slurm": ("SLURMCluster", "slurm", ()), "gridengine": ("SGECluster", "sge", ("-V",))}
"""Each one's class, its part of the configuration, and what lets its jobs see the user's environment."""
MEMORY = "1GB"
"""Of a worker, unless the configuration says another."""
MOST_LOST = 10
"""How many workers may be lost with one run before that is taken for the run's fault."""


class NoEngineError(Exception):
    """dask-jobqueue is not installed here."""


def on_cluster(
    engine: str,
    function: Callable[..., object],
    pieces: Sequence[tuple[object, ...]],
    *,
    jobs: int,
    on_progress: Progress,
) -> None:
    """Call a function with each of the tuples of arguments, by so many jobs at once."""
    try:
        import dask
        import dask_jobqueue
        from dask.distributed import Client, as_completed
    except ImportError as error:
        raise NoEngineError(f"{error}: pip install dask-jobqueue") from error
    kind, section, more = ENGINES[engine]
    own = dask.config.get(f"jobqueue.{section}")
    directives = [*own.get("job-extra-directives", ()), *more]
    memory = own.get("memory") or MEMORY
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": MOST_LOST}),
        getattr(dask_jobqueue, kind)(
            cores=1, processes=1, memory=memory, job_extra_directives=directives
        ) as cluster,
        Client(cluster) as client,
    ):
        cluster.adapt(minimum_jobs=jobs, maximum_jobs=jobs)
        waiting = [client.submit(function, *piece, pure=False) for piece in pieces]
        for done, future in enumerate(as_completed(waiting), 1):
            future.result()
            on_progress(done, len(pieces))
