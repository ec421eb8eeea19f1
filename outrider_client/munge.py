"""Credentials of MUNGE, made by the program `munge`: this machine's word for who asks.

A credential is for one request, sent once: its payload is the request's hash. Its key stays with
munged; neither this module nor the user who asks ever sees it.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import threading
from contextlib import suppress

from outrider_client.errors import MissingPartError, OutriderError, UnreachableError

PROGRAM = "munge"
SCHEME = "MUNGE"
MOST_CHARACTERS = 8_192
MOST_S = 10.0
"""A credential is made in milliseconds; a munged that takes so long hangs."""
MOST_REASON_CHARACTERS = 200


def authorisation(method: str, target: str, key: str, body: bytes, *, timeout_s: float) -> str:
    """The header that vouches for one attempt to send this request. Raises OutriderError."""
    wanted = hash_request(method, target, key, body)
    credential = _made(wanted.encode("ascii"), min(timeout_s, MOST_S))
    return f"{SCHEME} {credential}"


def hash_request(method: str, target: str, key: str, body: bytes) -> str:
    """What the payload of a credential has to be. `target` is the path with its query, as sent."""
    head = f"{method} {target}\n{key}\n".encode("ascii", "surrogateescape")
    return hashlib.sha256(head + body).hexdigest()


def _made(payload: bytes, timeout_s: float) -> str:
    """The credential for a payload, as the program prints it."""
    code, printed, is_late = _run([PROGRAM], payload, timeout_s)
    if is_late:
        raise _failed(f"gave no answer within {timeout_s:.0f} s")
    words = printed.decode("ascii", "replace").strip()
    if code:
        raise _failed(f"says: {_line(words) or f'exit code {code}'}")
    # Remarks of the program may stand before it.
    credential = words.rpartition("\n")[2]
    if len(printed) > MOST_CHARACTERS or not (credential.startswith("MUNGE:") and credential.endswith(":")):
        raise _failed(f"printed no credential, but {_line(words)!r}")
    if not credential.isascii() or not credential.isprintable():
        raise _failed("printed a credential with characters that no credential has")
    return credential


def _run(command: list[str], sent: bytes, timeout_s: float) -> tuple[int, bytes, bool]:
    """A program's exit code, the first of what it prints, and whether it was ended for being late."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # With all that it may have started it can be ended at once.
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise MissingPartError(
            f"the program {command[0]} is not there, which vouches for you over the network: have MUNGE "
            "installed on this machine, or run outrider on the service's own, where it asks over the socket"
        ) from error
    except OSError as error:
        raise _failed(f"cannot be run ({error.strerror})") from error
    late = threading.Event()

    def end() -> None:
        late.set()
        _kill(process)

    timer = threading.Timer(timeout_s, end)
    timer.start()
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        # One that ends before it has read all says why in what it prints.
        with suppress(BrokenPipeError):
            process.stdin.write(sent)
            process.stdin.close()
        printed = process.stdout.read(MOST_CHARACTERS + 1)
        if len(printed) > MOST_CHARACTERS:
            _kill(process)
        return process.wait(), printed, late.is_set()
    finally:
        timer.cancel()
        timer.join()
        if process.poll() is None:
            _kill(process)
            process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _failed(words: str) -> OutriderError:
    return UnreachableError(
        f"nobody vouches for you on this machine: {PROGRAM} {words}. See that munged runs here (systemctl "
        "status munge), or run outrider on the service's own machine"
    )


def _line(words: str) -> str:
    shown = words.removeprefix(f"{PROGRAM}: ").removeprefix("Error: ")[:MOST_REASON_CHARACTERS]
    return "".join(letter if letter.isprintable() else " " for letter in shown)
