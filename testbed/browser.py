"""A real Chromium without a screen, driven through Debian's chromedriver by the WebDriver protocol."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cachemgr.base.clock import SystemClock

PROGRAMS = ("chromium", "chromedriver")
SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
WAIT_S = 60.0
_STARTED = "started successfully on port "
CLOCK = SystemClock()


class BrowserFault(Exception):
    """The browser did not do what it was told, or something did not come about in it."""


def browser_lacks() -> str:
    """Which program is missing, in words; empty if none is."""
    missing = [each for each in PROGRAMS if shutil.which(each) is None]
    return f"there is no {missing[0]}: install Debian's chromium and chromium-driver" if missing else ""


class Browser:
    """One window. Use `browser()`."""

    def __init__(self, port: int, profile: Path, switches: tuple[str, ...] = ()) -> None:
        self._port = port
        self._path = ""
        options = {"args": [*SWITCHES, *switches, f"--user-data-dir={profile}"]}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        answer = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._path = f"/session/{answer['sessionId']}"

    def close(self) -> None:
        with suppress(BrowserFault, OSError):
            self._ask("DELETE", "")

    def open(self, address: str) -> None:
        self._ask("POST", "/url", {"url": address})

    def size(self, width: int, height: int) -> None:
        """The page's own size in CSS pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        """What the system prefers: dark or light."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.command("Emulation.setEmulatedMedia", {"features": features})

    def command(self, name: str, parameters: dict[str, Any]) -> Any:
        """One of the browser's own commands."""
        return self._ask("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def run(self, script: str, *arguments: object) -> Any:
        """What a function's body returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script: str, *arguments: object, within_s: float = WAIT_S) -> Any:
        """What it returns as soon as that is something."""
        until_s = CLOCK.monotonic_s() + within_s
        while True:
            found = self.run(script, *arguments)
            if found:
                return found
            if CLOCK.monotonic_s() > until_s:
                shown = str(self.run("return document.body.innerText"))[:2_000]
                raise BrowserFault(f"not within {within_s:.0f} s: {script}\n{shown}\n{self.said()}")
            CLOCK.sleep(0.05)

    def promised(self, script: str, *arguments: object) -> Any:
        """What a function's body gives to its last argument, later."""
        self._ask("POST", "/timeouts", {"script": int(1000 * WAIT_S)})
        return self._ask("POST", "/execute/async", {"script": script, "args": list(arguments)})

    def keys(self, text: str) -> None:
        """Typed where the focus is."""
        actions = [{"type": kind, "value": sign} for sign in text for kind in ("keyDown", "keyUp")]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def said(self) -> list[str]:
        """What stands in the console, scripts' faults included."""
        return [each["message"] for each in self._ask("POST", "/se/log", {"type": "browser"})]

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=2 * WAIT_S)
        try:
            content = json.dumps({} if body is None else body) if method == "POST" else None
            connection.request(method, self._path + path, content, {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(answer, dict) and "error" in answer:
            raise BrowserFault(f"{path}: {answer['error']}: {answer.get('message', '')[:1_000]}")
        return answer


@contextmanager
def browser(*switches: str) -> Iterator[Browser]:
    """A browser with a profile of its own, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="outrider-browser-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            found = Browser(_port_of(process), Path(folder), switches)
            try:
                yield found
            finally:
                found.close()
        finally:
            process.terminate()
            process.wait(WAIT_S)
            if process.stdout is not None:
                process.stdout.close()


def _port_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        said.append(line)
        _, is_there, port = line.partition(_STARTED)
        if is_there:
            return int(port.strip().rstrip("."))
    raise BrowserFault(f"chromedriver does not start: {''.join(said)}")
