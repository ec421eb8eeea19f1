"""Tests in forked workers (`--forks COUNT`): collected once, then run in processes that have all of them.

Workers of pytest-xdist each import and collect everything by themselves, which for eight took more processor
time than most folders' tests. Here one process does it and forks. What a worker is asked for, and when its
fixtures end, is as with xdist: a unit's end closes all but what is kept for the session.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

import pytest

from tests.scheduling import COMPUTING, next_unit, unit_of

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG."""
END_S = 20
"""For so long a worker may have a handler of a test's."""


@dataclass(kw_only=True, slots=True)
class Worker:
    """A forked process, and which of its unit's tests have not ended yet."""

    number: int
    pid: int
    ended: int
    """A descriptor that can be read when the process has ended."""
    channel: Connection
    rest: list[int] = field(default_factory=list)


class ForkedRun:
    """The process that has collected, and hands out units."""

    def __init__(self, config: pytest.Config, count: int) -> None:
        self._config = config
        self._count = count
        self._workers: list[Worker] = []
        self._units: dict[str, list[int]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        option = self._config.option
        if option.collectonly or (session.testsfailed and not option.continue_on_collection_errors):
            return None
        for index, item in enumerate(session.items):
            self._units.setdefault(unit_of(item.nodeid), []).append(index)
        # What is there already is not looked at again by any worker's collector of garbage.
        gc.collect()
        gc.freeze()
        try:
            for number in range(min(self._count, len(self._units))):
                self._fork(session, number)
            while self._workers:
                self._listen(session)
        finally:
            for worker in self._workers:
                os.kill(worker.pid, signal.SIGTERM)
            for worker in self._workers:
                if not wait([worker.ended], END_S):
                    os.kill(worker.pid, signal.SIGKILL)
                os.waitpid(worker.pid, 0)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _fork(self, session: pytest.Session, number: int) -> None:
        ours, theirs = Pipe()
        base = self._config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for each in (ours, *(worker.channel for worker in self._workers)):
                each.close()
            work(session, theirs, number, base)
        theirs.close()
        self._workers.append(Worker(number=number, pid=pid, ended=os.pidfd_open(pid), channel=ours))

    def _listen(self, session: pytest.Session) -> None:
        """What has been said is taken before notice is taken of a worker's end."""
        ready = wait([each for worker in self._workers for each in (worker.channel, worker.ended)])
        for worker in list(self._workers):
            if worker.channel in ready:
                self._hear(session, worker)
            elif worker.ended in ready and not worker.channel.poll():
                self._part(session, worker)

    def _hear(self, session: pytest.Session, worker: Worker) -> None:
        said = None
        with suppress(EOFError, ConnectionError):
            said = worker.channel.recv()
        if said is None:
            wait([worker.ended])
            self._part(session, worker)
            return
        kind, content = said
        if kind == "next":
            worker.channel.send(self._next_for(session, worker))
        elif kind == "report":
            report = self._config.hook.pytest_report_from_serializable(config=self._config, data=content)
            self._tell(report)
            if report.when == "teardown" and worker.rest:
                worker.rest.pop(0)
        else:
            raise RuntimeError(f"worker {worker.number}: {content}")

    def _next_for(self, session: pytest.Session, worker: Worker) -> list[int] | None:
        if not self._units or session.shouldfail or session.shouldstop:
            return None
        computes = worker.number < self._count // COMPUTING
        worker.rest = self._units.pop(next_unit(self._units, computes=computes))
        return list(worker.rest)

    def _tell(self, report: Any) -> None:
        self._config.hook.pytest_runtest_logreport(report=report)
        if report.when == "teardown":
            self._config.hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)

    def _part(self, session: pytest.Session, worker: Worker) -> None:
        """Who ends with tests left has been ended by the first of them: another worker gets the others."""
        self._workers.remove(worker)
        _, status = os.waitpid(worker.pid, 0)
        os.close(worker.ended)
        worker.channel.close()
        if not worker.rest:
            return
        item = session.items[worker.rest[0]]
        text = f"the worker ended with status {os.waitstatus_to_exitcode(status)} while it ran this"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "teardown")
        self._tell(report)
        if worker.rest[1:]:
            self._units = {unit_of(item.nodeid): worker.rest[1:], **self._units}
            self._fork(session, worker.number)


class Reporting:
    """What a worker says of its tests."""

    def __init__(self, config: pytest.Config, channel: Connection) -> None:
        self._config = config
        self._channel = channel

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._channel.send(("report", data))


def work(session: pytest.Session, channel: Connection, number: int, base: Any) -> NoReturn:
    """What a forked process does until there are no more units."""
    config = session.config
    try:
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGTERM)
        # What was registered so far is the parent's to do.
        atexit._clear()
        _settle(config, number, base)
        config.pluginmanager.register(Reporting(config, channel))
        last = None
        for unit in _units(channel):
            for index, following in zip(unit, [*unit[1:], None], strict=True):
                last = session.items[index]
                # At a unit's end nobody knows yet what comes; what is the session's can stay.
                after: Any = session if following is None else session.items[following]
                config.hook.pytest_runtest_protocol(item=last, nextitem=after)
                if session.shouldfail or session.shouldstop:
                    break
        if last is not None:
            _close(session, last)
        atexit._run_exitfuncs()
    except KeyboardInterrupt:
        os._exit(2)
    except BaseException:  # noqa: BLE001
        channel.send(("error", traceback.format_exc()))
        os._exit(1)
    os._exit(0)


def _units(channel: Connection) -> Iterator[list[int]]:
    while True:
        channel.send(("next", None))
        unit = channel.recv()
        if unit is None:
            return
        yield unit


def _settle(config: pytest.Config, number: int, base: Any) -> None:
    """Output, folders and the name that a worker has for itself."""
    os.environ["PYTEST_XDIST_WORKER"] = f"gw{number}"
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()
        capture.start_global_capturing()
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter._tw._file = open(os.devnull, "w")  # noqa: SIM115
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = base / f"popen-gw{number}"
    factory._basetemp.mkdir(mode=0o700, exist_ok=True)


def _close(session: pytest.Session, last: pytest.Item) -> None:
    """End what was kept for the session; a failure is one of the last test's."""
    call = pytest.CallInfo.from_call(lambda: session._setupstate.teardown_exact(None), when="teardown")
    if call.excinfo is not None:
        report = last.ihook.pytest_runtest_makereport(item=last, call=call)
        last.ihook.pytest_runtest_logreport(report=report)
