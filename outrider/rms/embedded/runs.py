"""Jobs and their commands, brought together: what runs in the world runs on the machine, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from outrider.rms.base import JobState
from outrider.rms.embedded.launching import Command, Handle, Launcher
from outrider.rms.embedded.machines import SAVE_SIGNAL
from outrider.rms.twin.jobs import TwinJob


@dataclass(slots=True, eq=False)
class JobRun:
    """One start of a job. `start_s` tells it from an earlier one."""

    handle: Handle
    start_s: int
    is_machine: bool = False
    """Whether the command keeps a virtual machine, which is saved before it leaves its nodes, or gone."""
    is_begun: bool = False
    is_stopped: bool = False
    is_ending: bool = False
    is_saving: bool = False


class Runs:
    """Every command that was launched and is not known to be over, by its job."""

    def __init__(
        self,
        launcher: Launcher,
        command_of: Callable[[TwinJob], Command],
        fail: Callable[[TwinJob, str], None],
    ) -> None:
        self._launcher = launcher
        self._command_of = command_of
        self._fail = fail
        self.all: dict[str, JobRun] = {}

    def over(self) -> list[str]:
        """The jobs whose commands have ended."""
        return [job for job, run in self.all.items() if run.handle.is_over()]

    def off_nodes(self, job: str, state: JobState | None) -> None:
        """Before an epilog: a job that is on no node any more does nothing there."""
        run = self.all.get(job)
        if run is None or run.is_stopped:
            return
        if state is JobState.SUSPENDED and not run.is_machine:
            run.handle.stop()
            run.is_stopped = True
        else:
            self._end(job)

    def signal(self, job: str, name: str) -> None:
        """Send a signal to a job's command itself, if it has one now: what it has started is its business."""
        run = self.all.get(job)
        if run is not None and run.is_begun and not run.is_stopped:
            run.handle.signal(name)

    def follow(self, jobs: Mapping[str, TwinJob]) -> None:
        """Let each command be as its job is; what is launched waits for `begin`."""
        for key in list(self.all):
            self._follow_one(key, jobs.get(key))
        for job in list(jobs.values()):
            if job.state is JobState.RUNNING and job.leaving is None and job.key not in self.all:
                self._launch(job)

    def begin(self) -> None:
        """Let go what was launched: that it was is on the disk."""
        for run in self.all.values():
            if not run.is_begun:
                run.handle.begin()
                run.is_begun = True

    def save(self, jobs: Mapping[str, TwinJob]) -> None:
        """Let machines be saved whose jobs are to be: that they are is on the disk. Told twice, by a service
        that was started anew, they save themselves once."""
        for key, run in self.all.items():
            job = jobs.get(key)
            is_wanted = job is not None and job.leaving is not None and job.leaving.kept_s is not None
            if run.is_machine and is_wanted and not run.is_saving:
                run.handle.signal(SAVE_SIGNAL)
                run.is_saving = True

    def end_all(self) -> None:
        for key in list(self.all):
            self._end(key)

    def leave_all(self) -> None:
        for run in self.all.values():
            run.handle.leave()
        self.all = {}

    def _follow_one(self, key: str, job: TwinJob | None) -> None:
        run = self.all[key]
        if job is None:
            self._end(key)
        elif job.state is JobState.RUNNING and run.is_stopped:
            run.handle.go_on()
            run.is_stopped, run.start_s = False, job.start_s or 0
        elif job.state is JobState.RUNNING and run.start_s != job.start_s:
            self._end(key)
        elif job.state is JobState.RUNNING:
            is_ending = job.leaving is not None and job.leaving.kept_s is None
            if is_ending and not run.is_ending:
                run.handle.ask_to_end()
                run.is_ending = True
        elif not run.is_stopped:
            self.off_nodes(key, job.state)

    def _launch(self, job: TwinJob) -> None:
        try:
            handle = self._launcher.launch(self._command_of(job))
        except (OSError, KeyError) as error:
            self._fail(job, f"its command cannot be started: {error}")
            return
        self.all[job.key] = JobRun(handle, job.start_s or 0, is_machine=bool(job.submission.machine))

    def _end(self, key: str) -> None:
        self.all.pop(key).handle.kill()
