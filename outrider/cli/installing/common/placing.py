"""Puts files on a machine and takes them away again: on the head in this process, on a node as a program.

The whole module is sent to a node's `/usr/bin/python3 -I -S` over ssh, so it is written for Python 3.9
and imports the standard library alone. It is told everything by one request, a JSON object, and answers
with one: it can be called again at any time, and cut off at any time. Each file is written beside its
place, synced and renamed; what was there before is kept and comes back on removal. A manifest says what
is ours: nothing else is ever changed or deleted.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import grp
import hashlib
import json
import os
import pwd
import shlex
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from typing import Any

MANIFEST = "/usr/lib/outrider/manifest.json"
BEFORE = ".before-outrider"
NEW = ".outrider-new"
MOST_BYTES = 64 << 20
COMMAND_S = 60
LAST_WORDS = 2000
SOCKET = "/run/outrider/cachemgr.sock"
ANSWER_S = 5
PAUSE_S = 0.1
BLOCK_BYTES = 65_536
FICLONE = 0x40049409
MOST_LINE_BYTES = 65_536

Json = dict[str, Any]


class PlacingError(Exception):
    """Something could not be put in its place; says what, and what to do."""


def carry_out(request: Json) -> Json:
    """Do what one request says."""
    place = Place(request.get("root", ""), request.get("manifest", MANIFEST))
    files = [File(each) for each in request.get("files", [])]
    if request["do"] == "look":
        return {
            "files": {each.path: place.found(each) for each in files},
            "too_open": too_open(place, files),
            "digests": {path: mark_of(place.at(path)) for path in request.get("digests", [])},
            "pool": pool_of(place.at(request["pool"])) if "pool" in request else {},
            **machine(place.root),
        }
    if request["do"] == "put":
        changed = place.put(request.get("folders", []), files)
        resized = sized(request, place)
        return {**changed, **resized, **started(request, place, changed["changed"], files)}
    if request["do"] == "remove":
        stopped(request)
        return place.remove(request.get("leftovers", []))
    raise PlacingError(f"a request says {request['do']!r}, but look, put or remove is known")


class File:
    """A file as it should be: its bytes or where it points to, its mode and owner."""

    def __init__(self, about: Json) -> None:
        self.path = about["path"]
        self.link = about.get("link", "")
        self.mode = about.get("mode", 0o644)
        self.owner = about.get("owner", "")
        self.content: bytes | None = (
            base64.b64decode(about["content"]) if about.get("content") is not None else None
        )
        self.digest = about.get("digest", "")
        self.is_config = about.get("is_config", False)
        self.restarts = about.get("restarts", False)

    def check(self) -> None:
        """Whether it has arrived as it was sent."""
        if self.link:
            return
        if self.content is None or hashlib.sha256(self.content).hexdigest() != self.digest:
            raise PlacingError(f"{self.path} did not arrive as it was sent: try again")

    @property
    def mark(self) -> str:
        return f"link:{self.link}" if self.link else str(self.digest)


class Place:
    """A machine's files below a root, and the manifest of those that are ours."""

    def __init__(self, root: str, manifest: str) -> None:
        self.root = root.rstrip("/")
        self._manifest = manifest
        self.manifest_path = self.at(manifest)
        self.entries: dict[str, Json] = {}
        self.folders: list[str] = []
        if os.path.exists(self.manifest_path):
            known = json.loads(read(self.manifest_path))
            self.entries, self.folders = known["files"], known["folders"]

    def at(self, path: str) -> str:
        return self.root + path

    def state(self, file: File) -> str:
        """same, missing, older (ours, another content), edited (ours, changed by somebody), foreign."""
        there = mark_of(self.at(file.path))
        entry = self._entry(file.path)
        if there is None:
            return "missing"
        if entry is not None and there not in (entry["mark"], entry["was"], file.mark):
            return "edited"
        if there == file.mark:
            return "same" if file.link or self._is_owned(file) else "older"
        return "older" if entry is not None else "foreign"

    def found(self, file: File) -> str:
        """As `state`; or unusable: a program that is right, and that nobody or only root could run."""
        state = self.state(file)
        if state == "missing" or file.link or not file.mode & 0o001:
            return state
        can_run = all(os.stat(self.at(each)).st_mode & 0o001 for each in upwards(file.path))
        return state if can_run else "unusable"

    def put(self, folders: list[Json], files: list[File]) -> Json:
        """Make it so. Files of configuration that somebody has edited, or made, stay as they are."""
        changed, kept = [], []
        for file in files:
            file.check()
        for about in [{"path": os.path.dirname(self._manifest)}, *folders]:
            self._folder(about)
        todo = []
        for file in files:
            state = self.state(file)
            if file.is_config and state in ("edited", "foreign"):
                kept.append(file.path)
            elif state != "same":
                todo.append((file, state))
        # All that is written is written before anything is renamed: the new version appears at once.
        for file, _ in todo:
            self._write_beside(file)
        for file, state in todo:
            self._swap(file, state)
            changed.append(file.path)
        return {"changed": changed, "kept": kept}

    def remove(self, leftovers: list[str]) -> Json:
        """Take away what is ours and unchanged, with what the daemon has made; put back what was before."""
        removed: list[str] = []
        kept: list[str] = []
        for path in sorted(self.entries):
            (removed if self._undo(path) else kept).append(path)
        for each in leftovers:
            quietly(os.unlink, self.at(each))
            quietly(os.rmdir, self.at(each))
        last = os.path.dirname(self._manifest)
        above = [each for each in self.folders if (last + "/").startswith(each + "/")]
        for folder in sorted(set(self.folders) - set(above), reverse=True):
            quietly(os.rmdir, self.at(folder))
        # As long as there is anything of ours, there is the manifest that says so.
        quietly(os.unlink, self.manifest_path + NEW)
        quietly(os.unlink, self.manifest_path)
        for folder in sorted(above, reverse=True):
            quietly(os.rmdir, self.at(folder))
        return {"removed": removed, "kept": kept}

    def _undo(self, path: str) -> bool:
        """Take one file away, or leave it, if somebody has made another of it."""
        quietly(os.unlink, beside(self.at(path)))
        entry = self._entry(path)
        if entry is None:
            # What was there before is there again: an earlier removal was cut off.
            return True
        there, before = mark_of(self.at(path)), entry["before"]
        if before and there == mark_of(self.at(before)):
            os.unlink(self.at(before))
        elif there is not None and there not in (entry["mark"], entry["was"]):
            return False
        elif before:
            os.replace(self.at(before), self.at(path))
        elif there is not None:
            os.unlink(self.at(path))
        sync_folder(os.path.dirname(self.at(path)))
        return True

    def _entry(self, path: str) -> Json | None:
        """What is known of a file of ours; nothing if it has not become ours, or is no more."""
        entry = self.entries.get(path)
        if entry is None or (entry["before"] and not os.path.lexists(self.at(entry["before"]))):
            return None
        return entry

    def _folder(self, about: Json) -> None:
        path = about["path"]
        missing = []
        while not os.path.isdir(self.at(path)):
            missing.append(path)
            path = os.path.dirname(path)
        if not missing:
            return
        self.folders += [each for each in missing if each not in self.folders]
        self._save()
        for each in reversed(missing):
            os.makedirs(self.at(each), exist_ok=True)
            os.chmod(self.at(each), about.get("mode", 0o755))
        if about.get("owner"):
            os.chown(self.at(about["path"]), *ids_of(about["owner"]))

    def _write_beside(self, file: File) -> None:
        place = beside(self.at(file.path))
        quietly(os.unlink, place)
        if file.link:
            os.symlink(file.link, place)
            return
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(file.content or b"")
                out.flush()
                os.fchmod(out.fileno(), file.mode)
                if file.owner:
                    os.fchown(out.fileno(), *ids_of(file.owner))
                os.fsync(out.fileno())
        except BaseException:
            quietly(os.unlink, place)
            raise

    def _swap(self, file: File, state: str) -> None:
        path = self.at(file.path)
        entry = self._entry(file.path)
        before = entry["before"] if entry is not None else ""
        if state == "foreign":
            before = file.path + BEFORE
            quietly(os.unlink, self.at(before))
        # Noted first. Without the copy of what was there it does not count: nothing has happened yet.
        was = entry["mark"] if entry is not None else ""
        self.entries[file.path] = {"mark": file.mark, "was": was, "before": before}
        self._save()
        if state == "foreign":
            os.link(path, self.at(before), follow_symlinks=False)
        os.replace(beside(path), path)
        sync_folder(os.path.dirname(path))

    def _save(self) -> None:
        text = json.dumps({"version": 1, "files": self.entries, "folders": self.folders}, indent=1)
        os.makedirs(os.path.dirname(self.manifest_path), exist_ok=True)
        with open(self.manifest_path + NEW, "w") as out:
            out.write(text + "\n")
            out.flush()
            os.fsync(out.fileno())
        os.replace(self.manifest_path + NEW, self.manifest_path)

    def _is_owned(self, file: File) -> bool:
        found = os.lstat(self.at(file.path))
        is_owners = not file.owner or (found.st_uid, found.st_gid) == ids_of(file.owner)
        return is_owners and stat.S_IMODE(found.st_mode) == file.mode


def beside(path: str) -> str:
    """Where a file is written first: no pattern of a site's hooks matches it there."""
    return f"{os.path.dirname(path)}/.{os.path.basename(path)}{NEW}"


def upwards(path: str) -> list[str]:
    """A path, and the folders above it."""
    return [] if path in ("/", "") else [path, *upwards(os.path.dirname(path))]


def too_open(place: Place, files: list[File]) -> list[Json]:
    """What others than root can write to, being root at a job's start; secrets that others can read."""
    ours = {each.path: each for each in files}
    found: list[Json] = []
    for path in sorted({above for each in ours for above in upwards(each)}):
        try:
            about = os.lstat(place.at(path))
        except OSError:
            continue
        if stat.S_ISLNK(about.st_mode):
            continue
        file = ours.get(path)
        owner_uid = ids_of(file.owner)[0] if file is not None and file.owner else os.getuid()
        # In a sticky folder nobody takes away what is another's.
        is_sticky = stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX
        is_secret = file is not None and not file.link and not file.mode & 0o077
        if about.st_uid not in (0, owner_uid) or (about.st_mode & 0o022 and not is_sticky):
            found.append({"path": path, "mode": f"{stat.S_IMODE(about.st_mode):04o}", "by": "written"})
        elif is_secret and about.st_mode & 0o077:
            found.append({"path": path, "mode": f"{stat.S_IMODE(about.st_mode):04o}", "by": "read"})
    return found


def machine(root: str) -> Json:
    """What a machine can do."""
    return {
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "has_systemd": not root and os.path.isdir("/run/systemd/system"),
        "uid": os.getuid(),
        "now_s": time.time(),  # noqa: TID251 - a program of its own, which nobody hands a clock
    }


def pool_of(path: str) -> Json:
    """Whether copies cost nothing where the pool is, and how much is free there."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    about = os.statvfs(path)
    return {
        "free_bytes": about.f_bavail * about.f_frsize,
        "size_bytes": about.f_blocks * about.f_frsize,
        "has_reflinks": has_reflinks(path),
    }


def has_reflinks(path: str) -> bool:
    """Try it, beside the pool if that is the same file system: nothing strange is left in a pool."""
    above = os.path.dirname(path)
    if os.stat(above).st_dev == os.stat(path).st_dev:
        path = above
    try:
        with tempfile.TemporaryFile(dir=path) as source, tempfile.TemporaryFile(dir=path) as copy:
            source.write(b"x" * BLOCK_BYTES)
            source.flush()
            fcntl.ioctl(copy.fileno(), FICLONE, source.fileno())
    except OSError:
        return False
    return True


def sized(request: Json, place: Place) -> Json:
    """Make the pool if there is none, or give it another limit."""
    pool = request.get("pool")
    if not pool:
        return {"is_resized": False}
    before = mark_of(place.at(pool["marker"]))
    if pool["limit"]:
        run([*pool["command"], "--limit", pool["limit"]])
    elif before is None:
        raise PlacingError("all files are there, but no pool: say how large it may be, with --limit 200GiB")
    return {"is_resized": before not in (None, mark_of(place.at(pool["marker"])))}


def started(request: Json, place: Place, changed: list[str], files: list[File]) -> Json:
    """Have the daemon run what is now there."""
    words: list[str] = []
    service = request.get("service")
    if not service:
        return {"service": "", "words": words}
    is_new = any(each.restarts and each.path in changed for each in files)
    if service.get("command"):
        return {"service": by_command(service["command"], is_new), "words": words}
    if not machine(place.root)["has_systemd"]:
        is_there = daemon_pid() != 0
        if not is_there or is_new:
            verb = "restart" if is_there else "start"
            words.append(f"no systemd here: {verb} it yourself with {shlex.join(service['by_hand'])}")
        return {"service": "not started" if not is_there or is_new else "running", "words": words}
    run(["systemctl", "daemon-reload"])
    run(["systemctl", "enable", service["unit"]])
    asked = ["systemctl", "is-active", "--quiet", service["unit"]]
    is_active = subprocess.run(asked, timeout=COMMAND_S, check=False).returncode == 0
    if is_active and not is_new:
        return {"service": "running", "words": words}
    run(["systemctl", "restart", service["unit"]])
    return {"service": "restarted" if is_active else "started", "words": words}


def by_command(command: str, is_new: bool) -> str:
    """Have a command of the administrator's start the daemon, after the old one has ended."""
    was_running = daemon_pid() != 0
    if was_running and not is_new:
        return "running"
    end_daemon()
    run(["/bin/sh", "-c", command])
    return "restarted" if was_running else "started"


def stopped(request: Json) -> None:
    """End the daemon before its files go."""
    service = request.get("service")
    if not service:
        return
    if machine(request.get("root", ""))["has_systemd"]:
        subprocess.run(
            ["systemctl", "disable", "--now", service["unit"]],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=COMMAND_S, check=False,
        )  # fmt: skip
    elif service["unit"] == "cachemgr.service":
        end_daemon()


def daemon_pid() -> int:
    """The process that answers on the daemon's socket; 0 if none does."""
    try:
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(ANSWER_S)
            asked.connect(SOCKET)
            asked.sendall(b'{"v":1,"do":"ping"}\n')
            return int(json.loads(asked.makefile("rb").readline(MOST_LINE_BYTES))["result"]["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def end_daemon() -> None:
    """Ask the daemon that answers to end, and wait until it has."""
    pid = daemon_pid()
    if not pid:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        for _ in range(int(COMMAND_S / PAUSE_S)):
            os.kill(pid, 0)
            time.sleep(PAUSE_S)
        raise PlacingError(f"the daemon (process {pid}) does not end: look at its log")


def run(command: list[str]) -> None:
    """A command that has to succeed. What it leaves behind must not hold the connection open."""
    path = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
    with open(os.devnull) as nothing:
        try:
            done = subprocess.run(
                command, stdin=nothing, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=COMMAND_S, check=False, env=path, close_fds=True,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PlacingError(f"{shlex.join(command)} could not be run: {error}") from error
    if done.returncode:
        said = done.stdout.decode("utf-8", "replace").strip()[-LAST_WORDS:]
        raise PlacingError(f"{shlex.join(command)} failed ({done.returncode}): {said}")


def mark_of(path: str) -> str | None:
    """What is there: where a link points to, a file's digest, or nothing."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        return "link:" + os.readlink(path)
    if not stat.S_ISREG(found.st_mode):
        raise PlacingError(f"{path} is there and is not a file: move it away")
    return hashlib.sha256(read(path)).hexdigest()


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise PlacingError(f"{path} has more than {MOST_BYTES} bytes: that is not one of ours")
    return content


def ids_of(owner: str) -> tuple[int, int]:
    """`user` or `user:group` as numbers."""
    user, _, group = owner.partition(":")
    try:
        found = pwd.getpwnam(user)
        return found.pw_uid, grp.getgrnam(group).gr_gid if group else found.pw_gid
    except KeyError as error:
        raise PlacingError(f"there is no user or group {owner} on this machine: make it first") from error


def sync_folder(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def quietly(change: Any, path: str) -> None:
    """A change that is not needed if it cannot be made."""
    with contextlib.suppress(OSError):
        change(path)


def main() -> None:
    """One request on stdin, one answer on stdout."""
    try:
        answer = carry_out(json.loads(sys.stdin.buffer.read()))
    except (PlacingError, OSError) as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    # A connection that is cut must not stop the work in its middle.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    main()
