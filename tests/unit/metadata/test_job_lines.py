"""What a job's user says of its image, in lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.metadata.errors import TextError
from outrider.metadata.joblines import FORMATS, JobLines, parse_job_lines, write_job_lines

DIGEST = "sha256:" + "0a" * 32


def test_all_keys_are_read() -> None:
    text = (
        f"image: https://host/a.qcow2\ndigest: {DIGEST}\nsize: 2GiB\n"
        "format: qcow2\nprivate: true\nname: render\n"
    )

    assert parse_job_lines(text) == JobLines(
        image="https://host/a.qcow2",
        digest=DIGEST,
        size_bytes=2 << 30,
        format="qcow2",
        is_private=True,
        name="render",
    )


@pytest.mark.parametrize(
    "text",
    [
        f"image=http://h/u.qcow2?a=b;digest=sha256:{'ab' * 32};size=2GiB",
        f"image: http://h/u.qcow2?a=b\ndigest: sha256:{'ab' * 32}\nsize: 2GiB\n",
    ],
)
def test_one_line_says_what_many_lines_say(text: str) -> None:
    found = parse_job_lines(text)

    assert (found.image, found.digest) == ("http://h/u.qcow2?a=b", f"sha256:{'ab' * 32}")
    assert found.size_bytes == 2 << 30


@pytest.mark.parametrize(
    ("grace", "seconds"), [("1s", 1), ("90s", 90), ("2m", 120), ("2min", 120), ("1h", 3600)]
)
def test_preemptible_job_says_how_it_is_told_and_how_long_it_has(grace: str, seconds: int) -> None:
    text = f"image: a\npreemptible: requeue\ncheckpoint: USR1\ngrace: {grace}\n"

    found = parse_job_lines(text)

    assert (found.is_preemptible, found.checkpoint, found.grace_s) == (True, "USR1", seconds)
    assert parse_job_lines(write_job_lines(found)) == found


def test_job_in_a_machine_may_be_suspended() -> None:
    found = parse_job_lines("image: a\nrun: vm\nboot: debian-12\npreemptible: suspend\n")

    assert (found.is_machine, found.boot) == (True, "debian-12")
    assert (found.is_preemptible, found.is_suspendable) == (True, True)
    assert parse_job_lines(write_job_lines(found)) == found
    assert not parse_job_lines("image: a\nrun: vm\npreemptible: requeue").is_suspendable


def test_machine_has_what_its_lines_say() -> None:
    text = "image: a\nrun: vm\nscratch: 2GiB\ndisk-rate: 10MB\nnetwork-rate: 64KiB\nlease: interactive\n"
    found = parse_job_lines(text)

    assert found.machine.scratch_bytes == 2 << 30
    assert found.machine.disk_rate_bytes_per_s == 10_000_000
    assert found.machine.network_rate_bytes_per_s == 65_536
    assert found.machine.is_interactive
    assert parse_job_lines(write_job_lines(found)) == found


@pytest.mark.parametrize("text", ["image: a", "image: a\npreemptible: no"])
def test_job_is_not_preemptible_unless_it_says_so(text: str) -> None:
    assert not parse_job_lines(text).is_preemptible


@pytest.mark.parametrize("text", ["http://h/u.qcow2", "ubuntu-24.04"])
def test_address_or_name_alone_is_an_image(text: str) -> None:
    assert parse_job_lines(text) == JobLines(image=text)


def test_image_alone_is_enough_with_quotes_blanks_and_remarks() -> None:
    assert parse_job_lines('# mine\n\n  Image:  "ubuntu"  \n') == JobLines(image="ubuntu")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "image is missing"),
        ("image: a\nimage: b", "image is given twice"),
        ("imgae: a", "did you mean image?"),
        ("image: a\ncolour: red", "known are image, digest"),
        ("image:", "image has no value"),
        ("image: a b", 'image is "a b": write an address'),
        ("image: a\ndigest: md5:00", "write sha256: and 64 hexadecimal digits"),
        ("image: a\nsize: many", "size: "),
        ("image: a\nformat: zip", "write one of qcow2"),
        ("image: a\nprivate: maybe", "write true or false"),
        ("image: a\nname: ../etc", 'name is "../etc"'),
        ("image: a\npreemptible: suspend", "virtual machine"),
        ("image: a\npreemptible: true", "write one of no, requeue, suspend"),
        ("image: a\nrun: container", "write one of vm"),
        ("image: a\nboot: debian", "boot has no effect without run: vm"),
        ("image: a\nscratch: 2GiB", "scratch has no effect without run: vm"),
        ("image: a\nrun: vm\nscratch: 1kB", "between 1048576 and"),
        ("image: a\nrun: vm\ndisk-rate: fast", "disk-rate: "),
        ("image: a\nrun: vm\nlease: open", "write interactive"),
        ("image: a\nrun: vm\nboot: ../etc", "the name of one of the site's kernels"),
        ("image: a\nrun: vm\nformat: sif", "a machine has disks"),
        ("image: a\nrun: vm\npreemptible: requeue\ncheckpoint: USR1", "suspends a machine"),
        ("image: a\nrun: vm\npreemptible: suspend\ncheckpoint: USR2", "checkpoint has no effect without"),
        ("image: a\ngrace: 60s", "grace has no effect without preemptible: requeue"),
        ("image: a\npreemptible: no\ncheckpoint: USR1", "checkpoint has no effect without"),
        ("image: a\npreemptible: requeue\ngrace: 60s", "grace has no effect without checkpoint"),
        ("image: a\npreemptible: requeue\ncheckpoint: KILL", "write one of USR1"),
        ("image: a\npreemptible: requeue\ncheckpoint: USR1\ngrace: 0s", "write a time like 90s"),
        ("image: a\npreemptible: requeue\ncheckpoint: USR1\ngrace: 60", "write a time like 90s"),
        ("version: 1\nmetadata:\n  name: render", "the key"),
        ("just words", "is not a line of the form key: value"),
        ("imgae=http://h/u.qcow2", "did you mean image?"),
        ("image: " + "a" * 9000, "at most 8192 are read"),
    ],
)
def test_fault_is_named_with_its_key(text: str, words: str) -> None:
    with pytest.raises(TextError) as raised:
        parse_job_lines(text)

    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    words = ""
    try:
        words = parse_job_lines(text).image
    except TextError as error:
        words = str(error)

    assert words


@given(
    st.builds(
        JobLines,
        image=st.from_regex(r"[a-z0-9./:_-]{1,40}", fullmatch=True),
        digest=st.sampled_from(["", DIGEST]),
        size_bytes=st.none() | st.integers(1, 1 << 50),
        format=st.sampled_from(["", *FORMATS]),
        is_private=st.booleans(),
        name=st.from_regex(r"([a-z0-9][a-z0-9-]{0,20})?", fullmatch=True),
    )
)
def test_what_is_written_is_read_again(lines: JobLines) -> None:
    assert parse_job_lines(write_job_lines(lines)) == lines


def test_roles_are_read_with_the_names_of_their_machines() -> None:
    text = "image: a\nrun: vm\nrole: head cpus=4\nrole: worker count=2 memory=1GiB user-data=w.sh\n"

    lines = parse_job_lines(text + "role: store hosts=s[08-09],t\n")

    assert [role.hosts for role in lines.roles] == [("head",), ("worker1", "worker2"), ("s08", "s09", "t")]
    assert (lines.roles[0].cpus, lines.roles[1].memory_mib, lines.roles[1].user_data) == (4, 1024, "w.sh")
    assert parse_job_lines(write_job_lines(lines)) == lines


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ("role: head\nrole: head", "is given twice"),
        ("role: w count=2\nrole: x hosts=w2", "host w2 is in two roles"),
        ("role: x hosts=w[1-3,2]", "names a host twice"),
        ("role: x hosts=w[1-2000]", "too many"),
        ("role: x count=1025", "from 1 to 1024"),
        ("role: x user-data=/etc/shadow", "not a file in the working folder"),
        ("role: x gpus=2", "gpus is not a key of a role"),
        ("role: x digest=sha256:" + "0" * 64, "digest has no effect without image"),
        ("role: x image=http://h/b digest=0", "write sha256:"),
    ],
)
def test_role_that_cannot_be_given_is_refused_by_its_name(roles: str, words: str) -> None:
    with pytest.raises(TextError, match=words):
        parse_job_lines(f"image: a\nrun: vm\n{roles}\n")
