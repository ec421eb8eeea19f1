"""The site's converter: makes one image of a registry once, for everybody on the node.

What an ordinary user converts, others cannot trust; so this service converts without anybody's
credentials (what it can have is public) and puts the result into the pool under a name that only
somebody privileged may give. Speaks the line protocol of cachemgr's daemon, with one verb.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
import stat
import tempfile
import threading
from dataclasses import dataclass, field

from cachemgr.base.clock import SystemClock
from cachemgr.base.errors import BadRequest, CacheError, InUse, NotAllowed, NotInPool
from cachemgr.base.message import ProtocolMessage, plain
from cachemgr.base.ownfolder import OwnFolder
from cachemgr.base.shares import Shares
from cachemgr.daemon.network.peer import caller_of
from cachemgr.daemon.verbs.requests import answer, parse
from cachemgr.network.client import DaemonClient
from cachemgr.protocol import AddRequest, NameRequest, PinFields
from outrider_pyxis.conversion import convert
from outrider_pyxis.reference import read_wanted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.base.clock import Clock
    from outrider_pyxis.config import Config
    from outrider_pyxis.reference import Reference

MOST_REQUEST_BYTES = 8192
MOST_CONNECTIONS = 256
MOST_OF_A_USER = 32
# One user has at most a quarter of what is left for others, of connections and of conversions.
PORTION = 4
REQUEST_S = 10.0
TELL_S = 1.0
# Until whoever waited has pinned it; eviction may take it then.
HELD_S = 600
OWNER = "pyxis-converter"
PURPOSE = "converter_scratch"
DRAFT = re.compile(r"(convert-|tmp)[a-z0-9_]{8}")


@dataclass
class Conversion:
    """One image on its way, and how it ended."""

    ended: threading.Event = field(default_factory=threading.Event)
    error: CacheError | None = None


class ConvertRequest(ProtocolMessage):
    """`convert`: the only verb. It is always waited for."""

    uri: str
    wait: bool = False


class Converter:
    """The conversions of a node: each image once at a time, so many at once, a bounded queue."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        log: Callable[[str], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._log = log
        self._lock = threading.Lock()
        self._running: dict[str, Conversion] = {}
        self._places = threading.Semaphore(config.converter_conversions)
        most = config.converter_conversions + config.converter_waiting
        self.shared = Shares("conversions", most=most, most_of_one=most, portion=PORTION)
        self._ids = ids_of(config.converter_user) if os.geteuid() == 0 else None

    def join(self, uri: str, uid: int) -> Conversion | None:
        """The conversion of that image, begun for that user if nobody has; None if it is in the pool."""
        wanted = read_wanted(uri, self._config.default_registry)
        reference = wanted.reference
        if reference is None or reference.user:
            raise BadRequest(f"{uri} is not for everybody: only images of registries, without USER@, are")
        allowed = self._config.converter_registries
        if allowed and reference.registry not in allowed:
            raise NotAllowed(
                f"the converter brings no images from {reference.registry}: ask for converter_registries"
            )
        if self._is_in_pool(reference):
            return None
        with self._lock:
            found = self._running.get(reference.pool_name)
            if found is not None:
                return found
            if not self.shared.take(uid):
                raise InUse(
                    f"you have {self.shared.held_by(uid)} of the {self.shared.in_all} images that are being "
                    f"converted or wait for it ({self.shared.most} may): try again when one has ended, "
                    "or ask the administrator for converter_waiting"
                )
            found = self._running[reference.pool_name] = Conversion()
        threading.Thread(target=self._work, args=(wanted.text, reference, found, uid), daemon=True).start()
        return found

    def _work(self, uri: str, reference: Reference, conversion: Conversion, uid: int) -> None:
        try:
            with self._places:
                # Another conversion may have ended between the look and the place.
                if not self._is_in_pool(reference):
                    self._bring(uri, reference)
        except CacheError as error:
            conversion.error = error
        except OSError as error:
            conversion.error = CacheError(f"{uri} could not be converted: {error}")
        finally:
            with self._lock:
                del self._running[reference.pool_name]
            self.shared.give(uid)
            conversion.ended.set()
            self._log(f"conversion ended image={reference.pool_name} error={conversion.error}")

    def _bring(self, uri: str, reference: Reference) -> None:
        config = self._config
        folder = tempfile.mkdtemp(prefix="convert-", dir=config.converter_scratch)
        try:
            # The outer folder stays ours: there nobody can put anything in the image's place.
            os.chmod(folder, 0o711)
            work = f"{folder}/conversion"
            os.mkdir(work, 0o700)
            if self._ids is not None:
                os.chown(work, *self._ids)
            made, output = f"{work}/image.squashfs", f"{folder}/image.squashfs"
            self._log(f"conversion started image={reference.pool_name}")
            convert(
                config.import_command,
                uri,
                made,
                environment=environment_in(work),
                timeout_s=config.patience_s,
                largest_bytes=config.converter_largest_bytes,
                as_user=self._ids,
            )
            take_over(made, output, os.geteuid() if self._ids is None else self._ids[0])
            wish = AddRequest(
                reference.pool_name,
                sources=(f"file://{output}",),
                pin=PinFields(OWNER, self._clock.now_s() + HELD_S),
                format="squashfs",
            )
            with DaemonClient(config.socket) as client:
                found = client.ask("add", plain(wish), on_progress=lambda progress: None)
                if not found["is_public"]:
                    # Somebody has the very same bytes in private. They came without credentials.
                    client.ask("add", plain(wish.changed(digest=found["digest"], private=False)))
        finally:
            self._remove(os.path.basename(folder))

    def _remove(self, name: str) -> None:
        try:
            folder = OwnFolder(self._config.converter_scratch, PURPOSE, mode=0o711, is_left=_is_draft)
        except (CacheError, OSError) as error:
            self._log(f"left of a conversion, and not removed name={name} error={error}")
            return
        try:
            remove_draft(folder, name, self._log)
        finally:
            folder.close()

    def _is_in_pool(self, reference: Reference) -> bool:
        try:
            with DaemonClient(self._config.socket) as client:
                client.ask("find", plain(NameRequest(reference.pool_name)))
        except NotInPool:
            return False
        return True


class Server:
    """The converter's socket: a thread a connection, one request each."""

    def __init__(self, converter: Converter, listener: socket.socket, log: Callable[[str], None]) -> None:
        self._converter = converter
        self._listener = listener
        self._log = log
        self.shared = Shares(
            "converter connections", most=MOST_CONNECTIONS, most_of_one=MOST_OF_A_USER, portion=PORTION
        )

    def serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection:
            try:
                uid = caller_of(connection, os.geteuid()).uid
                if not self.shared.take(uid):
                    raise InUse(
                        f"you have {self.shared.held_by(uid)} of the {self.shared.in_all} connections to the "
                        "converter: try again when one has ended"
                    )
                try:
                    self._answer(connection, uid)
                    line = {"ok": True, "result": {}}
                finally:
                    self.shared.give(uid)
            except CacheError as error:
                line = {
                    "ok": False, "error": error.code, "exit_code": error.exit_code, "message": str(error),
                }  # fmt: skip
            except OSError:
                # Gone, or silent: what it asked for goes on for the others.
                return
            try:
                connection.sendall(answer(line))
            except OSError:
                return

    def _answer(self, connection: socket.socket, uid: int) -> None:
        request = parse(read_line(connection))
        if request.verb != "convert":
            raise BadRequest(f"there is no verb {request.verb!r}: the converter knows convert")
        uri = request.read(ConvertRequest).uri
        self._log(f"asked uid={uid} uri={uri}")
        conversion = self._converter.join(uri, uid)
        while conversion is not None and not conversion.ended.wait(TELL_S):
            connection.sendall(json.dumps({"progress": {}}).encode() + b"\n")
        if conversion is not None and conversion.error is not None:
            raise conversion.error


def read_line(connection: socket.socket) -> bytes:
    line = b""
    clock = SystemClock()
    until_s = clock.monotonic_s() + REQUEST_S
    while not line.endswith(b"\n"):
        left_s = until_s - clock.monotonic_s()
        if left_s <= 0:
            raise BadRequest(f"the request was not complete within {REQUEST_S:g} s")
        connection.settimeout(left_s)
        data = connection.recv(MOST_REQUEST_BYTES)
        if not data or len(line) + len(data) > MOST_REQUEST_BYTES:
            raise BadRequest(f"a request is one line of at most {MOST_REQUEST_BYTES} bytes")
        line += data
    connection.settimeout(REQUEST_S)
    return line


def ids_of(user: str) -> tuple[int, int]:
    """Whom root becomes, since what comes out of a registry is not to be unpacked by root."""
    try:
        found = pwd.getpwnam(user)
    except KeyError as error:
        raise BadRequest(
            f"there is no user {user!r} to convert as: `useradd --system {user}`, or set converter_user"
        ) from error
    if found.pw_uid == 0:
        raise BadRequest("converter_user is root: name a user that has nothing else on this node")
    return found.pw_uid, found.pw_gid


def environment_in(folder: str) -> dict[str, str]:
    """Of nobody: no credentials, and every file of enroot's in the conversion's own folder."""
    places = ("ENROOT_CACHE_PATH", "ENROOT_DATA_PATH", "ENROOT_RUNTIME_PATH", "ENROOT_TEMP_PATH")
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": folder,
        "LC_ALL": "C",
        "ENROOT_CONFIG_PATH": f"{folder}/config",
        **dict.fromkeys(places, folder),
    }


def take_over(made: str, output: str, uid: int) -> None:
    """Move what the command made to where only we write; nothing but a file of that user's own.

    A link or another's file in its place would make everybody's what only root may read.
    """
    descriptor = os.open(made, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        os.rename(made, output)
        moved = os.lstat(output)
        is_same = (found.st_dev, found.st_ino) == (moved.st_dev, moved.st_ino)
        if not (is_same and stat.S_ISREG(found.st_mode) and found.st_uid == uid and found.st_nlink == 1):
            raise BadRequest(f"the import command left something else than a file of its own at {made}")
        if os.geteuid() == 0:
            os.fchown(descriptor, 0, 0)
        os.fchmod(descriptor, 0o444)
    finally:
        os.close(descriptor)


def prepare(config: Config, log: Callable[[str], None]) -> None:
    """The scratch folder, without what a killed converter has left there."""
    if not config.converter:
        raise BadRequest("set converter in pyxis.conf: the socket where the converter listens")
    os.makedirs(os.path.dirname(config.converter_scratch.rstrip("/")), mode=0o755, exist_ok=True)
    try:
        folder = OwnFolder(config.converter_scratch, PURPOSE, mode=0o711, is_left=_is_draft)
    except BadRequest as error:
        raise BadRequest(f"converter_scratch: {error}") from error
    except OSError as error:
        raise BadRequest(f"converter_scratch: {config.converter_scratch}: {error.strerror}") from error
    try:
        for name in folder.left():
            remove_draft(folder, name, log)
    finally:
        folder.close()


def remove_draft(folder: OwnFolder, name: str, log: Callable[[str], None]) -> None:
    """What is left of a conversion, whatever the user as whom it ran has made of it."""
    try:
        folder.remove(name)
    except (CacheError, OSError) as error:
        log(f"left of a conversion, and not removed folder={folder.path}/{name} error={error}")


def _is_draft(name: str, found: os.stat_result) -> bool:
    """Whether that is a folder of a conversion; earlier versions gave them no beginning of their own."""
    return stat.S_ISDIR(found.st_mode) and DRAFT.fullmatch(name) is not None
