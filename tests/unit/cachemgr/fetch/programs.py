"""Servers of ssh and rsync on the loopback, and what to do where they are not installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

STARTS_WITHIN_S = 90


def need(program: str) -> str:
    """The path of a program of Debian; without it a test is skipped, except in CI."""
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/lib/openssh")
    if path is None and os.environ.get("CI"):
        pytest.fail(f"{program} is not installed, and in CI it must be")
    if path is None:
        pytest.skip(f"{program} is not installed")
    return path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[None]:
    """A server in the foreground, until it listens and as long as it is needed."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        for _ in range(STARTS_WITHIN_S * 50):
            with socket.socket() as sock:
                if sock.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, log.read_text()
            time.sleep(0.02)
        else:
            pytest.fail(f"{command[0]} does not listen: {log.read_text()}")
        yield
    finally:
        process.terminate()
        process.wait(timeout=STARTS_WITHIN_S)


@contextmanager
def ssh_server(folder: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """A server that admits the present user by a key; gives its port and the options of a client."""
    sshd, keygen, sftp_server = need("sshd"), need("ssh-keygen"), need("sftp-server")
    for name in ("host", "client"):
        subprocess.run(
            [keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True, timeout=240
        )
    shutil.copy(folder / "client.pub", folder / "admitted")
    port = free_port()
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    (folder / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder / 'host'}\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {folder / 'admitted'}\nStrictModes no\nPasswordAuthentication no\n"
        # The quickest key exchange: tests connect often.
        f"KexAlgorithms curve25519-sha256\nSubsystem sftp {sftp_server}\n"
    )
    # Where sshd puts those who have not proved who they are; it refuses to start without.
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    options = (
        "-F", "none", "-i", str(folder / "client"), "-oIdentitiesOnly=yes",
        f"-oUserKnownHostsFile={folder / 'known'}", "-oStrictHostKeyChecking=yes",
    )  # fmt: skip
    with running([sshd, "-D", "-e", "-f", str(folder / "config")], port, folder / "log"):
        yield port, options


@contextmanager
def rsync_server(folder: Path, served: Path) -> Iterator[int]:
    """A server with one module, `images`."""
    rsync, port = need("rsync"), free_port()
    config = folder / "rsyncd.conf"
    config.write_text(
        f"use chroot = no\nuid = {os.getuid()}\ngid = {os.getgid()}\n[images]\npath = {served}\n"
    )
    command = [
        rsync,
        "--daemon",
        "--no-detach",
        f"--port={port}",
        "--address=127.0.0.1",
        f"--config={config}",
    ]
    with running(command, port, folder / "log"):
        yield port
