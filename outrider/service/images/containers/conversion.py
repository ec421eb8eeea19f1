"""One conversion: its layers brought, the program run, and what it made taken over."""

from __future__ import annotations

import json
import os
import pwd
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cachemgr.base.clock import Clock
from cachemgr.base.sizes import in_words
from cachemgr.fetch.registry.manifests import Blob, Container
from outrider.service.images.containers.faults import ConversionFault
from outrider.service.images.containers.layers import BlobSource, bring
from outrider.service.images.containers.made import MadeImage, MadeImages, Recipe, digest_of

MOST_CONFIG_BYTES = 8 << 20
MOST_LINE_BYTES = 1 << 16
LOOK_S = 0.5
SAFE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MAKER = "sqfstar"
# Isolated, an interpreter finds nothing that a site has installed in a folder of its own.
HERE = str(Path(__file__).resolve().parents[4])
LAUNCH = (
    "import runpy, sys; sys.path.append(sys.argv.pop()); "
    "runpy.run_module('outrider.service.images.containers.program', run_name='__main__')"
)
AS_LAYERS = "layers"
"""The format of what stays a manifest with its layers, for container runtimes on the nodes."""
AS_IT_IS = "as it is"
"""The format of what is not converted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """What conversions take at this site. `ids` are the user and group that the program becomes, or None."""

    made: MadeImages
    clock: Clock
    compression: str = "gzip"
    largest_bytes: int = 200_000_000_000
    patience_s: int = 3_600
    processors: int = 2
    ids: tuple[int, int] | None = None

    @property
    def command(self) -> tuple[str, ...]:
        return (
            *(MAKER, "-comp", self.compression, "-all-root", "-no-progress", "-quiet", "-exit-on-error"),
            *("-no-xattrs", "-processors", str(self.processors), "-mem", "512M"),
        )


class ConversionNews:
    """How far a conversion has come, in words. Any thread may ask."""

    def __init__(self, container: Container) -> None:
        self.all_bytes = sum(layer.size_bytes for layer in container.layers)
        self._fetched = 0
        self._read = 0
        self._written = 0
        self._step = ""

    def fetched(self, count: int) -> None:
        self._step = "fetching"
        self._fetched += count

    def told(self, step: str, count: int) -> None:
        self._step = step
        if step == "reading":
            self._read = count
        else:
            self._written = count

    def __str__(self) -> str:
        match self._step:
            case "":
                return "waits for its turn"
            case "fetching":
                return f"{in_words(self._fetched)} of {in_words(self.all_bytes)} of its layers are here"
            case "reading":
                return f"its layers are here, {in_words(self._read)} of them are read"
        percent = min(99, 100 * self._written // max(1, self._read))
        return f"its layers are here, {percent} % of them are written"


def convert(
    container: Container,
    recipe: Recipe,
    source: BlobSource,
    means: Means,
    telling: ConversionNews,
    is_wanted: Callable[[], bool],
) -> MadeImage:
    """Make the image. Raises ConversionFault; nothing of it is left then but layers that are whole."""
    layers_bytes = sum(layer.size_bytes for layer in container.layers)
    owner = object()
    work = Path(tempfile.mkdtemp(dir=means.made.folder / "work"))
    try:
        # What is made is rarely larger than what it is made of, which is packed as well.
        means.made.reserve(owner, 2 * layers_bytes + (1 << 20))
        if recipe.format == AS_LAYERS:
            return _kept_in_layers(container, recipe, source, means, telling, is_wanted)
        if recipe.format == AS_IT_IS:
            return _kept_as_it_is(container, recipe, source, means, telling, is_wanted)
        config = _brought(container.config, recipe.scope, source, means, lambda count: None, is_wanted)
        if container.config.size_bytes > MOST_CONFIG_BYTES:
            raise ConversionFault("the image's configuration is too large: push it again")
        layers = [
            _brought(layer, recipe.scope, source, means, telling.fetched, is_wanted)
            for layer in container.layers
        ]
        os.chmod(work, 0o711)
        result = _run(config, layers, work, recipe, means, telling, is_wanted)
        return means.made.keep(recipe, result, digest_of(result))
    except OSError as error:
        raise ConversionFault(f"the head cannot convert it: {error}; tell the administrators") from error
    finally:
        means.made.release(owner)
        shutil.rmtree(work, ignore_errors=True)


def _kept_as_it_is(
    container: Container,
    recipe: Recipe,
    source: BlobSource,
    means: Means,
    telling: ConversionNews,
    is_wanted: Callable[[], bool],
) -> MadeImage:
    """One file that nodes may not fetch themselves is only brought."""
    (blob,) = container.layers
    path = _brought(blob, recipe.scope, source, means, telling.fetched, is_wanted)
    return means.made.keep(recipe, path, blob.digest)


def _kept_in_layers(
    container: Container,
    recipe: Recipe,
    source: BlobSource,
    means: Means,
    telling: ConversionNews,
    is_wanted: Callable[[], bool],
) -> MadeImage:
    """Each blob is kept by its digest, and found as a part of its image; the manifest comes last."""
    for blob in container.layers:
        part = replace(recipe, format=f"{AS_LAYERS} {blob.digest}")
        if means.made.find(part) is None:
            path = _brought(blob, recipe.scope, source, means, telling.fetched, is_wanted)
            means.made.keep(part, path, blob.digest)
    path = _brought(container.config, recipe.scope, source, means, lambda count: None, is_wanted)
    return means.made.keep(recipe, path, container.config.digest)


def _brought(
    blob: Blob,
    scope: str,
    source: BlobSource,
    means: Means,
    note: Callable[[int], None],
    is_wanted: Callable[[], bool],
) -> Path:
    """Layers of repositories that not everybody may read are for those alone."""
    place = f"{recipe_part(scope)}{blob.digest.removeprefix('sha256:')}"
    path = means.made.folder / "layers" / place
    bring(blob, path, source, means.clock, note, is_wanted)
    return path


def recipe_part(scope: str) -> str:
    return f"{Recipe(manifest=scope, format='', tool='').key[:16]}-" if scope else ""


def _run(
    config: Path,
    layers: Sequence[Path],
    work: Path,
    recipe: Recipe,
    means: Means,
    telling: ConversionNews,
    is_wanted: Callable[[], bool],
) -> Path:
    inner = work / "conversion"
    inner.mkdir(0o700)
    if means.ids is not None:
        os.chown(inner, *means.ids)
    made = inner / "image"
    files = [os.open(layer, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW) for layer in layers]
    try:
        order = {
            "layers": files,
            "config": config.read_text("utf-8", "replace"),
            "format": recipe.format,
            "output": str(made),
            "identifier": recipe.key,
            "command": means.command,
            "most_bytes": means.largest_bytes,
            "largest_bytes": means.largest_bytes,
            "seconds": means.patience_s,
            "ids": means.ids or (),
        }
        _attend(_started(files, inner), order, means, telling, is_wanted)
    finally:
        for file in files:
            os.close(file)
    return _taken_over(made, work / "image", means.ids)


def _started(files: Sequence[int], folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-c", LAUNCH, HERE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=files,
        cwd="/",
        env={"PATH": SAFE_PATH, "LC_ALL": "C.UTF-8", "HOME": str(folder), "TMPDIR": str(folder)},
        start_new_session=True,
    )


def _attend(
    child: subprocess.Popen[bytes],
    order: dict[str, object],
    means: Means,
    telling: ConversionNews,
    is_wanted: Callable[[], bool],
) -> None:
    """Follow the program to its end, or end it. Raises ConversionFault unless it says that it is done."""
    assert child.stdin is not None
    assert child.stdout is not None
    until_s = means.clock.monotonic_s() + means.patience_s
    received = b""
    try:
        with suppress(BrokenPipeError):
            child.stdin.write(json.dumps(order).encode() + b"\n")
            child.stdin.flush()
        while True:
            if means.clock.monotonic_s() > until_s:
                raise ConversionFault(
                    f"its conversion took more than {means.patience_s} s: ask the administrators for "
                    "conversions.patience"
                )
            if not is_wanted():
                raise ConversionFault("it is not wanted any more")
            if not select.select([child.stdout], [], [], LOOK_S)[0]:
                continue
            data = os.read(child.stdout.fileno(), MOST_LINE_BYTES)
            *lines, received = (received + data).split(b"\n")
            for line in lines:
                if _heard(line, telling):
                    return
            if not data or len(received) > MOST_LINE_BYTES:
                raise ConversionFault(f"its conversion broke off (status {child.wait()}): ask again")
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdin.close()
        child.stdout.close()


def _heard(line: bytes, telling: ConversionNews) -> bool:
    """What the program says; whether it is done."""
    try:
        said = json.loads(line)
        if "done" in said:
            return True
        if "error" in said:
            raise ConversionFault(str(said["error"])[:1_000])
        telling.told(str(said["step"]), int(said["bytes"]))
    except (ValueError, TypeError, KeyError) as error:
        raise ConversionFault("its conversion says what cannot be understood: ask again") from error
    return False


def _taken_over(made: Path, output: Path, ids: tuple[int, int] | None) -> Path:
    """Move what the program made to where only we write; nothing but a file of that user's own."""
    try:
        file = os.open(made, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ConversionFault(f"its conversion left no image: {error.strerror}") from error
    try:
        found = os.fstat(file)
        os.rename(made, output)
        moved = os.lstat(output)
        owner = os.geteuid() if ids is None else ids[0]
        is_same = (found.st_dev, found.st_ino) == (moved.st_dev, moved.st_ino)
        if not (is_same and stat.S_ISREG(found.st_mode) and found.st_uid == owner and found.st_nlink == 1):
            raise ConversionFault("its conversion left something else than a file of its own")
        if ids is not None:
            os.fchown(file, os.geteuid(), os.getegid())
        os.fchmod(file, 0o600)
    finally:
        os.close(file)
    return output


def ids_of(user: str) -> tuple[int, int] | None:
    """Whom root becomes for a conversion; None for a service that is not root. Raises ConversionFault."""
    if os.geteuid() != 0:
        return None
    try:
        found = pwd.getpwnam(user)
    except KeyError as error:
        raise ConversionFault(
            f"there is no user {user!r} to convert as: the administrators have to make one (useradd --system "
            f"{user}), or set conversions.user"
        ) from error
    if found.pw_uid == 0:
        raise ConversionFault("conversions.user is root: name a user that has nothing else on the head")
    return found.pw_uid, found.pw_gid


def tool_of(means: Means) -> str:
    """What makes the result, with its version: another one may make other bytes. Raises ConversionFault."""
    try:
        done = subprocess.run(
            [MAKER, "-version"],
            capture_output=True,
            text=True,
            timeout=15,
            check=False,
            env={"PATH": SAFE_PATH, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConversionFault(
            f"{MAKER} is not installed on the head: ask the administrators for squashfs-tools 4.5 or later"
        ) from error
    version = next(iter(done.stdout.splitlines()), "").partition("(")[0].strip()
    return f"{version} {means.compression}"
