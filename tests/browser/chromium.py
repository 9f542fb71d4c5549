"""Headless Chromium, driven over a pair of pipes by its DevTools protocol."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]
PROGRAM = "chromium"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "about:blank",
)
TIMEOUT = 30.0  # seconds for one answer
KEYS = {
    "Tab": {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9},
    "Enter": {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"},
    "Space": {"key": " ", "code": "Space", "windowsVirtualKeyCode": 32, "text": " "},
}


class BrowserError(Exception):
    """The browser did not start, did not answer, or said no."""


@dataclass(slots=True)
class Browser:
    """One running Chromium."""

    process: subprocess.Popen[bytes]
    send_fd: int
    receive_fd: int
    _buffer: bytes = b""
    _next: int = 0
    events: list[Json] = field(default_factory=list)
    contexts: list[str] = field(default_factory=list)

    def call(self, method: str, session: str = "", **parameters: object) -> Json:
        """Return the result of one command; what else arrives meanwhile is kept as events."""
        self._next += 1
        message = {"id": self._next, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.send_fd, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + TIMEOUT
        while True:
            answer = self._receive(until)
            if answer.get("id") == self._next:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                result: Json = answer["result"]
                return result
            self.events.append(answer)

    def wait_for(self, method: str, session: str) -> Json:
        """Return the next event of this name."""
        until = time.monotonic() + TIMEOUT
        while True:
            for number, event in enumerate(self.events):
                if event.get("method") == method and event.get("sessionId") == session:
                    return self.events.pop(number)
            self.events.append(self._receive(until))

    def _receive(self, until: float) -> Json:
        while b"\0" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.receive_fd], [], [], left)[0]:
                raise BrowserError(f"no answer within {TIMEOUT} s")
            part = os.read(self.receive_fd, 1 << 20)
            if not part:
                raise BrowserError("the browser ended")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: Json = json.loads(line)
        return message

    def close_tabs(self) -> None:
        """Close all tabs, and forget what they stored and logged."""
        for context in self.contexts:
            self.call("Target.disposeBrowserContext", browserContextId=context)
        self.contexts.clear()
        self.events.clear()

    def tab(
        self, *, width: int = 1440, height: int = 900, dark: bool = False, script: bool = True
    ) -> "Tab":
        """Open a tab of its own, with nothing stored."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        self.contexts.append(context)
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        tab = Tab(self, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        tab.look(width=width, height=height, dark=dark)
        tab.call("Emulation.setScriptExecutionDisabled", value=not script)
        return tab


@dataclass(slots=True)
class Tab:
    """One tab."""

    browser: Browser
    session: str

    def call(self, method: str, **parameters: object) -> Json:
        return self.browser.call(method, self.session, **parameters)

    def look(self, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Give the window this size and these colours; a page that is open is laid out anew."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, address: str) -> None:
        """Go to *address* and wait until it is loaded."""
        found = self.call("Page.navigate", url=address)
        if "errorText" in found:
            raise BrowserError(f"{address}: {found['errorText']}")
        self.browser.wait_for("Page.loadEventFired", self.session)

    def evaluate(self, expression: str) -> Any:  # noqa: ANN401 -- whatever JSON it is
        """Return the value of a JavaScript expression."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise BrowserError(f"{expression[:80]}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def press(self, name: str, *, loads: bool = False) -> None:
        """Press a key; *loads* says that a page follows."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, **KEYS[name])
        if loads:
            self.browser.wait_for("Page.loadEventFired", self.session)

    def write(self, text: str) -> None:
        """Write *text* where the focus is."""
        self.call("Input.insertText", text=text)

    def tab_to(self, text: str, most: int = 150) -> None:
        """Press the tabulator until what has the focus has *text* as its name."""
        for _ in range(most):
            self.press("Tab")
            if self.focused() == text:
                return
        raise BrowserError(f"the keyboard does not reach {text!r}")

    def focused(self) -> str:
        """Return the name of what has the focus."""
        return str(
            self.evaluate(
                "(e => e.labels && e.labels[0] ? e.labels[0].textContent.trim()"
                " : e.textContent.replace(/\\s+/g, ' ').trim())(document.activeElement)"
            )
        )

    def text(self) -> str:
        """Return what is read on the page."""
        return str(self.evaluate("document.body.innerText"))

    def address(self) -> str:
        """Return the path and the values of the address."""
        return str(self.evaluate("location.pathname + location.search"))

    def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def complaints(self) -> list[str]:
        """Return what the browser logged: blocked content, exceptions, missing files."""
        self.evaluate("0")
        mine = [event for event in self.browser.events if event.get("sessionId") == self.session]
        return [
            event["params"]["entry"]["text"]
            for event in mine
            if event.get("method") == "Log.entryAdded"
        ] + [str(event["params"]) for event in mine if event["method"] == "Runtime.exceptionThrown"]

    def requests(self) -> list[str]:
        """Return every address that was asked for."""
        mine = [event for event in self.browser.events if event.get("sessionId") == self.session]
        return [
            event["params"]["request"]["url"]
            for event in mine
            if event["method"] == "Network.requestWillBeSent"
        ]


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Run a browser; raises :class:`BrowserError` where it does not start."""
    program = shutil.which(PROGRAM)
    if program is None:
        raise BrowserError(f"{PROGRAM} is not installed")
    to_browser, from_browser = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = f'exec "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}'
        arguments = (program, *FLAGS, f"--user-data-dir={profile}")
        process = subprocess.Popen(
            ("bash", "-c", command, "bash", *arguments),
            pass_fds=(to_browser[0], from_browser[1]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        try:
            yield Browser(process, to_browser[1], from_browser[0])
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(to_browser[1])
            os.close(from_browser[0])
