"""What the filter takes for a value, the service takes, too, and the other way round."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from outrider.metadata.errors import TextError
from outrider.metadata.fields import Digest, Name, Size, Uri
from outrider.metadata.joblines import parse_job_lines
from tests.unit.plugins.slurm.test_filter_alone import HERE, PLUGINS, interpreter

KINDS: dict[str, TypeAdapter[object]] = {
    "image": TypeAdapter(Uri),
    "digest": TypeAdapter(Digest),
    "size": TypeAdapter(Size),
    "name": TypeAdapter(Name),
}
RIGHT = {
    "image": [
        "http://h/a.qcow2",
        "ubuntu",
        "https://h:80/a/b?c=d#e",
        "a%2Fb",
        "file:///srv/x",
        "x..y",
        "h/a@b",
    ],
    "digest": ["sha256:" + "0a" * 32],
    "size": ["1", "600MB", "2 GiB", "1.5T", "0.5GB", "1152921504606846975", "1023PiB", "999999TB"],
    "name": ["web", "a" * 63, "A-1_b.c"],
    "preemptible": ["requeue", "suspend", "no"],
    "run": ["vm"],
    "boot": ["disk", "debian-12", "A" * 32],
    "scratch": ["1MiB", "20GiB", "16TiB"],
    "disk-rate": ["65536", "100MB", "1TiB"],
    "network-rate": ["64KiB", "1.5MB"],
    "lease": ["interactive"],
    "checkpoint": ["USR1", "USR2", "INT", "HUP", "TERM"],
    "grace": ["1s", "90s", "5m", "5min", "99999h"],
    "option": [
        "nodes=2 time=60",
        "time=2h  nodes=99999",
        "nodes=1\ttime=90m",
        "nodes=4 time=999999min",
        "nodes=1 time=3 cpus=8 memory=16GiB",
        "memory=800MB nodes=1 time=3 image=http://h/b.qcow2",
        "nodes=1 time=3 image=b digest=sha256:" + "0a" * 32,
    ],
    "value": ["0", "12.5", "999999999", "0.001"],
    "data": ["http://h/genes.raw", "maps name=m2", "a name=b\tdigest=sha256:" + "0a" * 32],
    "role": [
        "head",
        "worker count=3 cpus=2 memory=512MiB",
        "w-1\tuser-data=conf/w.yaml count=1024",
        "store hosts=s[1-3,07],t memory=32MB cpus=255",
        "x hosts=a,b[01-12]c,d",
        "store image=http://h/store.raw digest=sha256:" + "0a" * 32,
    ],
}
LETTERS = [
    *"aZ09._~:/?#@!$&()*+,;=%[]-'\" \\{}|^`<>\tä€",
    "..",
    "/../",
    "://",
    "%2e",
    "%2E%2e",
    "KiB",
    "b",
    "0",
]
CASES_OF_EACH = 1500


def cases(seed: int) -> Iterator[tuple[str, str]]:
    """Right values, each changed in up to three places."""
    chance = random.Random(seed)
    for key, values in RIGHT.items():
        yield from ((key, value) for value in values)
        for _ in range(CASES_OF_EACH):
            value = chance.choice(values)
            for _ in range(chance.randint(1, 3)):
                at = chance.randint(0, len(value))
                value = value[:at] + chance.choice(["", *LETTERS]) + value[at + chance.randint(0, 1) :]
            yield key, value


BESIDE = {
    "preemptible": "run: vm\n",
    "run": "",
    "option": "",
    "value": "",
    **dict.fromkeys(("boot", "scratch", "disk-rate", "network-rate", "lease", "role", "data"), "run: vm\n"),
    "checkpoint": "preemptible: requeue\n",
    "grace": "preemptible: requeue\ncheckpoint: USR1\n",
}
"""Keys that are read with others, and these."""


def is_taken_by_service(key: str, value: str) -> bool:
    if key in BESIDE:
        if value[:1] in ("'", '"'):
            # The filter has taken away quotation marks before it looks at a value.
            return False
        try:
            parse_job_lines(f"image: a\n{BESIDE[key]}{key}: {value}\n")
        except TextError:
            return False
        return True
    try:
        KINDS[key].validate_python(value)
    except ValidationError:
        return False
    return True


def test_filter_and_service_take_the_same_values() -> None:
    asked = [(key, value) for key, value in cases(20261122) if value == value.strip()]
    lines = "".join(f"{key} {value}\n" for key, value in asked)
    done = subprocess.run(
        [*interpreter("lua5.4"), str(Path(HERE) / "values.lua"), str(PLUGINS)],
        input=lines, capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    answers = [line == "yes" for line in done.stdout.splitlines()]

    different = [
        (key, value, is_taken)
        for (key, value), is_taken in zip(asked, answers, strict=True)
        if is_taken != is_taken_by_service(key, value)
    ]

    assert different[:20] == []
    assert sum(answers) > len(answers) / 20
