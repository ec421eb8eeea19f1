"""The two verbs that pyxis calls as the step's user: `get IMAGE` prints a path, `release` gives back.

Pyxis calls `release` after the container's file system has been made, or could not be, and once
more when the step ends. Whatever is lost between them ends with the lease.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import re
import stat
import sys
from dataclasses import dataclass
from urllib.parse import quote

from cachemgr.base.errors import (
    BadRequest,
    CacheError,
    DiskFailed,
    InUse,
    NoDaemon,
    NotAllowed,
    NotInPool,
    SourceFailed,
)
from cachemgr.base.message import plain
from cachemgr.network.client import DaemonClient
from cachemgr.pool.records import file_name
from cachemgr.protocol import AddRequest, PinFields, PinRequest, ReleaseRequest
from outrider_pyxis.reference import read_wanted
from outrider_pyxis.squashfs import check_squashfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cachemgr.base.clock import Clock
    from outrider_pyxis.config import Config
    from outrider_pyxis.reference import Reference

USAGE = "usage: outrider-importer get IMAGE | outrider-importer release"
NUMBER = re.compile("[0-9]{1,10}")
# Its batch script has no number.
BATCH_STEP = "batch"
DEFAULT_RUNTIME = "/run/pyxis"
LOCK_POLL_S = 0.1
RELEASE_ANSWER_S = 5.0


@dataclass(frozen=True)
class Step:
    """A job's step on this node: who leases."""

    job: str
    step: str

    @property
    def owner(self) -> str:
        return f"step-{self.job}.{self.step}"


def read_step(environment: Mapping[str, str]) -> Step:
    job = environment.get("SLURM_JOB_ID", "")
    step = environment.get("SLURM_STEP_ID", BATCH_STEP)
    if not NUMBER.fullmatch(job) or not (step == BATCH_STEP or NUMBER.fullmatch(step)):
        raise BadRequest(f"there is no step {job[:20]!r}.{step[:20]!r}: this is for pyxis to run, in a job")
    return Step(job, step)


@dataclass(frozen=True)
class Importer:
    """What a call has to do with: its step, the pool, a folder of the user's, and where to complain."""

    config: Config
    step: Step
    environment: Mapping[str, str]
    clock: Clock
    uid: int
    say: Callable[[str], None]

    def get(self, text: str) -> str:
        """The path of a squashfs file that stays until `release`."""
        wanted = read_wanted(text, self.config.default_registry)
        if wanted.kind == "pool":
            path = self._pin(wanted.text)
        elif wanted.kind == "address":
            path = self._add(AddRequest(wanted.text))
        elif wanted.kind == "file":
            path = self._from_file(wanted.text)
        elif wanted.reference is None:
            # Of a container daemon of this node: the name means another image tomorrow.
            path = self._convert(wanted.text, self._own_copy)
        else:
            path = self._from_registry(wanted.text, wanted.reference)
        check_squashfs(path)
        return path

    def release(self) -> None:
        """Give back all that the step has; right when nothing is there, and when called again."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._own_copy)
        with DaemonClient(self.config.socket) as client:
            client.ask("release", plain(ReleaseRequest(self.step.owner)), timeout_s=RELEASE_ANSWER_S)

    def _from_registry(self, uri: str, reference: Reference) -> str:
        """What is here already; else what the site's converter brings for all; else a copy of one's own."""
        try:
            path = self._present(uri, reference)
        except CacheError as error:
            self._go_on_without_pool(error)
            return self._convert(uri, self._own_copy)
        if path is None and self.config.converter and not reference.user:
            path = self._converted_for_all(uri, reference)
        return path or self._converted_for_user(uri, reference)

    def _present(self, uri: str, reference: Reference) -> str | None:
        names = [self._own_name(uri)] if reference.user else [reference.pool_name, self._own_name(uri)]
        for name in names:
            with contextlib.suppress(NotInPool):
                return self._pin(name)
        return None

    def _converted_for_all(self, uri: str, reference: Reference) -> str | None:
        try:
            with DaemonClient(self.config.converter) as client:
                client.ask("convert", {"uri": uri}, on_progress=self._check_patience())
            return self._pin(reference.pool_name)
        except CacheError as error:
            self.say(f"{error}; converting it for this user alone")
            return None

    def _converted_for_user(self, uri: str, reference: Reference) -> str:
        """Converted with the user's own credentials and put into the pool for this user alone.

        The steps of one user wait for one conversion; the next one finds its result in the pool.
        """
        stem = f"{self._checked_scratch()}/outrider-{file_name(uri)[:32]}"
        with self._lock(f"{stem}.lock"):
            path = self._present(uri, reference)
            if path is not None:
                return path
            # Of a step that was killed: nobody else writes while this lock is held.
            for left in glob.glob(f"{glob.escape(stem)}.*.part"):
                os.unlink(left)
            output = self._convert(uri, f"{stem}.{os.getpid()}.part")
            try:
                return self._add_own(output, self._own_name(uri))
            except CacheError as error:
                self._go_on_without_pool(error)
                os.replace(output, self._own_copy)
                return self._own_copy
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(output)

    def _go_on_without_pool(self, error: CacheError) -> None:
        if not self.config.fallback:
            raise error
        self.say(f"{error}; going on without the pool")

    def _pin(self, name: str) -> str:
        with DaemonClient(self.config.socket) as client:
            return _path_of(client.ask("pin", plain(PinRequest(name, self.step.owner, self._until_s))))

    def _add(self, wanted: AddRequest, descriptor: int | None = None) -> str:
        """The image, waited for if it is not here yet; the daemon makes one transfer of many requests."""
        pin = PinFields(self.step.owner, self._until_s)
        wish = plain(wanted.changed(format="squashfs", pin=pin))
        descriptors = [] if descriptor is None else [descriptor]
        with DaemonClient(self.config.socket) as client:
            found = client.ask("add", wish, descriptors=descriptors, on_progress=self._check_patience())
        return _path_of(found)

    def _from_file(self, path: str) -> str:
        """A file that the user opens here: that proves the right to read it.

        What not everybody may read stays private in the pool, and then somebody else may have
        the very same bytes there: the file itself serves as well.
        """
        check_squashfs(path)
        is_private = not os.stat(path).st_mode & stat.S_IROTH
        wanted = AddRequest(f"file://{quote(path)}", private=is_private)
        try:
            # Root names a file, and hands over none.
            return self._add(wanted) if self.uid == 0 else self._hand_over(path, wanted)
        except CacheError as error:
            self._go_on_without_pool(error)
            return path

    def _add_own(self, path: str, name: str) -> str:
        """A conversion of the user's own, which may have taken credentials: for nobody else."""
        if self.uid == 0:
            return self._add(AddRequest(name, sources=(f"file://{quote(path)}",), private=True))
        return self._hand_over(path, AddRequest(name, private=True))

    def _hand_over(self, path: str, wanted: AddRequest) -> str:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return self._add(wanted, descriptor)
        finally:
            os.close(descriptor)

    def _own_name(self, uri: str) -> str:
        """What a user's own conversion is called in the pool: a name that no other user's requests mean."""
        bare = f"converted:{quote(uri, safe='')}"
        return bare if self.uid == 0 else f"file:///{bare}"

    def _convert(self, uri: str, output: str) -> str:
        # What is in the pool is told without it, milliseconds earlier.
        from outrider_pyxis.conversion import convert

        self._checked_scratch()
        timeout_s = self.config.patience_s
        convert(self.config.import_command, uri, output, environment=self.environment, timeout_s=timeout_s)
        return output

    @property
    def _until_s(self) -> int:
        return self.clock.now_s() + self.config.lease_s

    def _check_patience(self) -> Callable[[object], None]:
        until_s = self.clock.monotonic_s() + self.config.patience_s

        def check(progress: object) -> None:
            if self.clock.monotonic_s() > until_s:
                raise SourceFailed(
                    f"the image was not here after {self.config.patience_s} s; it continues to arrive: "
                    "try again later, or have patience raised in pyxis.conf"
                )

        return check

    @contextlib.contextmanager
    def _lock(self, path: str) -> Iterator[None]:
        """Held by one process of this user at a time; the kernel frees it when that dies."""
        until_s = self.clock.monotonic_s() + self.config.patience_s
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DiskFailed(f"{path}: {error.strerror}: set scratch in pyxis.conf") from error
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if self.clock.monotonic_s() > until_s:
                        raise InUse(f"another step converts this image for too long: {path}") from None
                    self.clock.sleep(LOCK_POLL_S)
            yield
        finally:
            os.close(descriptor)

    @property
    def _scratch(self) -> str:
        runtime = self.environment.get("PYXIS_RUNTIME_PATH", DEFAULT_RUNTIME)
        return self.config.scratch.replace("{runtime}", runtime).replace("{uid}", str(self.uid))

    def _checked_scratch(self) -> str:
        """The folder, made if need be; what others could write to is refused: they could swap the image."""
        folder = self._scratch
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            found = os.lstat(folder)
        except OSError as error:
            raise DiskFailed(f"{folder}: {error.strerror}: set scratch in pyxis.conf") from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != self.uid or found.st_mode & 0o022:
            raise DiskFailed(f"{folder} is not a folder of yours alone: remove it, or set scratch")
        return folder

    @property
    def _own_copy(self) -> str:
        return f"{self._scratch}/outrider-{self.step.owner}.squashfs"


def main(
    arguments: list[str], environment: Mapping[str, str], clock: Clock, load: Callable[[], Config]
) -> int:
    """Exit status of a call. Only the path goes to stdout; pyxis shows stderr if the status is not 0."""
    verb = arguments[0] if arguments else ""
    if (verb, len(arguments)) not in (("get", 2), ("release", 1)):
        _say(USAGE)
        return BadRequest.exit_code
    try:
        step = read_step(environment)
        importer = Importer(load(), step, environment, clock, os.geteuid(), _say)
        if verb == "get":
            path = importer.get(arguments[1])
            sys.stdout.write(f"{path}\n")
            sys.stdout.flush()
        else:
            importer.release()
    except (CacheError, OSError) as error:
        _say(f"{error}; its lease will end by itself" if verb == "release" else str(error))
        if verb == "release":
            # A step must not fail because something could not be given back.
            return 0
        return error.exit_code if isinstance(error, CacheError) else DiskFailed.exit_code
    return 0


def _path_of(image: Mapping[str, object]) -> str:
    path = image.get("path")
    if path is None:
        raise NotAllowed(
            f"image {image.get('digest')} is here, but private: ask its owner (uid {image.get('owner_uid')}) "
            "to name you as a reader"
        )
    if not isinstance(path, str) or not path.startswith("/") or "\n" in path:
        raise NoDaemon("the daemon did not say where the image is: update cachemgr on this node")
    return path


def _say(text: str) -> None:
    sys.stderr.write(f"outrider: {text}\n")
