"""Headless Chromium and the workshop's server, as fixtures; skipped, with a reason, where there is no Chromium.

With ONLINE_SOFTMAX_REQUIRE_BROWSER set, a missing one is a failure instead: continuous integration sets it.
"""

import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync")
WIDTHS = (1200, 390)


def missing(reason):
    if os.environ.get("ONLINE_SOFTMAX_REQUIRE_BROWSER"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("Playwright is not installed")
    path = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if path is None:
        missing(f"no Chromium on PATH: looked for {', '.join(CHROMIUMS)}")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield chromium
        chromium.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(port, edit=False, directory=None):
    code = f"from online_softmax.workshop.server import serve; serve({port}, edit={edit}, browser=False)"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=directory, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    assert "The workshop is at" in line, line
    return process, line.split()[4].rstrip(";,")


def stop(process):
    process.terminate()
    process.wait(timeout=30)
    process.stdout.close()


@pytest.fixture(scope="module")
def address():
    pytest.importorskip("marimo")
    process, url = start(free_port())
    yield url
    stop(process)


class Watched:
    """A page, and everything it complained about or asked for."""

    def __init__(self, browser, scheme="light", width=WIDTHS[0]):
        self.context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.errors, self.outgoing = [], []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._request)

    def _console(self, message):
        if message.type == "error":
            self.errors.append(message.text)

    def _request(self, request):
        if not request.url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:", "file:")):
            self.outgoing.append(request.url)

    def open(self, address):
        self.page.goto(address)
        self.page.wait_for_selector('[data-readout="rescales"]')

    def resize(self, width):
        self.page.set_viewport_size({"width": width, "height": 900})

    def readout(self, name):
        return self.page.locator(f'[data-readout="{name}"]').first.inner_text()

    def wait_for_readout(self, name, value):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if self.page.locator(f'[data-readout="{name}"]').count() and self.readout(name) == value:
                return
            self.page.wait_for_timeout(100)
        raise AssertionError(f"{name} reads {self.readout(name)!r}, not {value!r}")

    def complains_of_nothing(self):
        assert self.errors == []
        assert self.outgoing == []

    def close(self):
        self.context.close()
        self.complains_of_nothing()
