"""Files of this host, and sources behind the tools ssh and rsync: whole, from the middle, and broken."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.errors import SourceFailed, Unsuitable
from cachemgr.fetch.engine import transfer
from cachemgr.fetch.faults import SourceFault, TransferFailed
from cachemgr.fetch.report import Report
from cachemgr.fetch.sources.programs.rsync import RsyncSettings
from cachemgr.fetch.sources.programs.ssh import SshSettings
from cachemgr.fetch.sources.sources import SourceSettings, resolve, source_of
from tests.unit.cachemgr.fetch.fakes import FakeSink
from tests.unit.cachemgr.fetch.programs import rsync_server, ssh_server

DATA = Random(12).randbytes(3_000_000)
CLOCK = SystemClock()
# A name that a shell would take apart, and a path that an option parser would take for an option.
NAME = 'it\'s $(touch x); -rf "a" b.img'


class Place:
    """A source of some kind: the URI of a folder's files, and the settings to read them."""

    def __init__(self, kind: str, prefix: str, folder: Path, settings: SourceSettings) -> None:
        self.kind = kind
        self.folder = folder
        self.settings = settings
        self._prefix = prefix

    def uri(self, name: str) -> str:
        quoted = "".join(each if each.isalnum() or each in "./" else f"%{ord(each):02X}" for each in name)
        return self._prefix + quoted

    def fetch(self, sink: FakeSink, name: str, validator: str | None = None) -> Report:
        source = source_of(self.uri(name), self.settings, CLOCK, validator=validator)
        return transfer(sink, [source], clock=CLOCK, random=Random(3))


@pytest.fixture(scope="module", params=["file", "ssh", "sftp", "rsync"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder, own = tmp_path_factory.mktemp("images"), tmp_path_factory.mktemp("server")
    (folder / NAME).write_bytes(DATA)
    (folder / "empty").write_bytes(b"")
    environment = {"PATH": os.environ["PATH"]}
    if request.param == "file":
        yield Place("file", f"file://{folder}/", folder, SourceSettings())
    elif request.param == "rsync":
        with rsync_server(own, folder) as port:
            settings = SourceSettings(rsync=RsyncSettings(str(own), environment=environment))
            yield Place("rsync", f"rsync://127.0.0.1:{port}/images/", folder, settings)
    else:
        with ssh_server(own) as (port, options):
            settings = SourceSettings(ssh=SshSettings(options=options, environment=environment))
            yield Place(
                request.param,
                f"{request.param}://{getpass.getuser()}@127.0.0.1:{port}{folder}/",
                folder,
                settings,
            )


@pytest.mark.parametrize("have_bytes", [0, 1_234_567, len(DATA) - 1])
def test_file_arrives_from_any_byte_on(place: Place, have_bytes: int) -> None:
    sink = FakeSink(len(DATA))
    sink.data += DATA[:have_bytes]

    report = place.fetch(sink, NAME)

    assert sink.data == DATA
    assert report.skipped_bytes == 0
    assert report.said == ()


def test_size_and_name_are_known_before_the_first_byte(place: Place) -> None:
    found = resolve(place.uri(NAME), place.settings, CLOCK)

    assert (found.size_bytes, found.name) == (len(DATA), NAME)
    assert resolve(place.uri("empty"), place.settings, CLOCK).size_bytes == 0


def test_missing_file_is_said_to_be_missing(place: Place) -> None:
    with pytest.raises(SourceFailed, match=r"(?i)no such file"):
        resolve(place.uri("nothing.img"), place.settings, CLOCK)


def test_folder_is_not_taken_for_an_image(place: Place) -> None:
    (place.folder / "folder").mkdir(exist_ok=True)

    with pytest.raises(SourceFailed, match=r"not a regular file|not one file|the SFTP server says: failure"):
        resolve(place.uri("folder"), place.settings, CLOCK)


def test_file_replaced_meanwhile_is_noticed(place: Place) -> None:
    path = place.folder / "replaced.img"
    path.write_bytes(DATA)
    found = resolve(place.uri(path.name), place.settings, CLOCK)
    path.write_bytes(bytes(len(DATA)))
    os.utime(path, (1, 1))

    with pytest.raises(TransferFailed, match="the file has changed"):
        place.fetch(FakeSink(len(DATA)), path.name, found.validator)


def test_nothing_is_left_after_a_stream_is_closed_in_the_middle(place: Place, tmp_path: Path) -> None:
    settings = place.settings
    if settings.rsync is not None:
        settings = SourceSettings(rsync=RsyncSettings(str(tmp_path), environment=settings.rsync.environment))
    source = source_of(place.uri(NAME), settings, CLOCK)
    room = memoryview(bytearray(10_000))

    stream = source.open(5, len(DATA), 20)
    while (count := stream.read_into(room, 1)) is None:
        pass
    stream.close()

    assert room[:count] == DATA[5 : 5 + count]
    assert list(tmp_path.iterdir()) == []


def test_bytes_are_in_order_however_small_the_buffer(place: Place) -> None:
    stream = source_of(place.uri(NAME), place.settings, CLOCK).open(len(DATA) - 100_000, len(DATA), 20)
    room = memoryview(bytearray(7_001))
    received = b""
    while len(received) < 100_000:
        received += room[: stream.read_into(room, 5) or 0]
    stream.close()

    assert received == DATA[-100_000:]


def test_sftp_server_that_answers_in_parts_and_out_of_order_is_understood(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(DATA)
    stand_in = Path(__file__).with_name("sftp_stand_in.py")
    settings = script(tmp_path / "ssh", f"exec {sys.executable} {stand_in} {tmp_path / 'image'}")
    sink = FakeSink(len(DATA))

    transfer(sink, [source_of("sftp://h/x", settings, CLOCK)], clock=CLOCK, random=Random(3))

    assert sink.data == DATA


def test_rsync_is_asked_for_the_rest_alone(tmp_path: Path) -> None:
    served, own = tmp_path / "served", tmp_path / "own"
    served.mkdir()
    own.mkdir()
    (served / "image").write_bytes(DATA)
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(
        f'#!/bin/sh\nfor last; do :; done\n[ -f "$last" ] && stat -c \'%s %b\' "$last" > {tmp_path}/began\n'
        'exec rsync "$@"\n'
    )
    wrapper.chmod(0o755)
    sink = FakeSink(len(DATA))
    sink.data += DATA[:2_500_000]
    with rsync_server(tmp_path, served) as port:
        rsync = RsyncSettings(str(own), program=str(wrapper), environment={"PATH": os.environ["PATH"]})
        source = source_of(f"rsync://127.0.0.1:{port}/images/image", SourceSettings(rsync=rsync), CLOCK)
        transfer(sink, [source], clock=CLOCK, random=Random(3))

    assert sink.data == DATA
    # As long as what is here, and without a block on the disk.
    assert (tmp_path / "began").read_text().split() == ["2500000", "0"]


def test_named_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(SourceFailed, match="not a regular file"):
        resolve(str(tmp_path / "pipe"), SourceSettings(), CLOCK)


def test_rsync_without_a_scratch_folder_says_what_is_missing() -> None:
    with pytest.raises(Unsuitable, match="a folder for scratch files"):
        source_of("rsync://h/module/x", SourceSettings(), CLOCK)


def script(path: Path, text: str) -> SourceSettings:
    """Settings under which this shell script is called instead of ssh."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return SourceSettings(ssh=SshSettings(program=str(path), environment={"PATH": os.environ["PATH"]}))


def test_complaint_of_ssh_is_quoted(tmp_path: Path) -> None:
    settings = script(tmp_path / "ssh", "echo 'Permission denied (publickey).' >&2; exit 255")

    with pytest.raises(SourceFailed, match=r"ended with 255: Permission denied \(publickey\)"):
        resolve("ssh://h/x", settings, CLOCK)


@pytest.mark.parametrize("scheme", ["ssh", "sftp"])
def test_ssh_that_hangs_is_ended_within_its_time(scheme: str, tmp_path: Path) -> None:
    settings = script(tmp_path / "ssh", f"echo $$ > {tmp_path / 'pid'}; exec sleep 100")
    begin_s = CLOCK.monotonic_s()

    with pytest.raises(SourceFailed, match=r"longer than 0\.5 s|does not answer within 0\.5 s"):
        resolve(f"{scheme}://h/x", settings, CLOCK, timeout_s=0.5)

    assert CLOCK.monotonic_s() - begin_s < 3
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize("scheme", ["ssh", "sftp"])
def test_ssh_that_prints_nonsense_is_a_fault(scheme: str, tmp_path: Path) -> None:
    settings = script(tmp_path / "ssh", "echo 'Welcome to this machine!'; cat > /dev/null")

    with pytest.raises(SourceFailed, match=r"not a size|malformed"):
        resolve(f"{scheme}://h/x", settings, CLOCK)


def test_endless_output_is_cut_off(tmp_path: Path) -> None:
    with pytest.raises(SourceFailed, match="prints more than"):
        resolve("ssh://h/x", script(tmp_path / "ssh", "exec yes"), CLOCK)


def test_long_complaint_does_not_block_and_its_end_is_kept(tmp_path: Path) -> None:
    settings = script(tmp_path / "ssh", "yes complaint | head -c 500000 >&2; echo the end >&2; exit 1")

    with pytest.raises(SourceFailed, match=r"complaint the end$") as caught:
        resolve("ssh://h/x", settings, CLOCK)

    assert len(str(caught.value)) < 4500


def test_missing_program_is_named_with_the_remedy() -> None:
    settings = SourceSettings(ssh=SshSettings(program="/nonexistent/ssh"))

    with pytest.raises(SourceFailed, match=r"/nonexistent/ssh cannot be started.*install it"):
        resolve("ssh://h/x", settings, CLOCK)


def test_program_that_dies_in_the_middle_is_a_fault_with_its_complaint(tmp_path: Path) -> None:
    text = "echo 3000000 5 81a4; head -c 1000 /dev/zero; echo 'Connection reset by peer' >&2; exit 255"
    source = source_of("ssh://h/x", script(tmp_path / "ssh", text), CLOCK)
    room = memoryview(bytearray(10_000))
    stream = source.open(0, len(DATA), 10)

    arrived = 0
    while arrived < 1000:
        arrived += read_until_quiet(stream.read_into, room)
    assert arrived == 1000
    with pytest.raises(SourceFault, match="ended with 255: Connection reset by peer"):
        read_until_quiet(stream.read_into, room)
    stream.close()


def read_until_quiet(read_into: object, room: memoryview) -> int:
    """The next bytes; complaints alone do not count."""
    assert callable(read_into)
    while (count := read_into(room, 1)) is None:
        pass
    return int(count)
