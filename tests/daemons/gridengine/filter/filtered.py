"""A cluster with the submit filter, and jobs that go through it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from outrider.rms.commands import Output
from tests.contract.gridengine_cluster import Cluster
from tests.unit.plugins.gridengine.jsv import CLIENT, SERVER

FILTER = "#!/bin/sh\nOUTRIDER_JSV_CONFIG=/media/etc/jsv.json exec /media/bin/outrider_jsv.py\n"
ALLOWED = "ac,h,i,e,o,j,M,N,p,w,q_hard,l_hard,ar,pe_name,pe_min,pe_max"
DIGEST = "cd" * 32


@contextmanager
def filtered() -> Iterator[Cluster]:
    """It starts jobs only when a test lets time pass."""
    with Cluster() as made:
        for path in (*SERVER.parent.glob("outrider_jsv*.py"), CLIENT):
            shutil.copy(path, made.disk / "bin" / path.name)
            (made.disk / "bin" / path.name).chmod(0o755)
        made.write("etc/key", "0123456789abcdef0123456789abcdef\n")
        made.write("etc/images", json.dumps({DIGEST: "*"}))
        made.write("etc/jsv.json", json.dumps({"key": "/media/etc/key", "images": "/media/etc/images"}))
        made.write("bin/jsv", FILTER)
        (made.disk / "bin" / "jsv").chmod(0o755)
        made.set_global(jsv_url="script:/media/bin/jsv", jsv_allowed_mod=ALLOWED)
        yield made


def submit(cluster: Cluster, *options: str, command: str = "sleep") -> Output:
    argv = ["qsub", "-terse", "-b", "y", *options, command, "100"]
    status, output, error = cluster.attempt(argv, user="alice")
    return Output(status, output.encode(), error)


def key_of(done: Output) -> str:
    assert done.code == 0, done.complaint
    return done.text.decode().strip().partition(".")[0]
