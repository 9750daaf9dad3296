"""The workshop's server: marimo in a process of its own, on the loopback address only."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import webbrowser
from pathlib import Path

HOST = "127.0.0.1"
FIRST_PORT = 2718
_FILES = ("app.py", "style.css")


class CannotServeError(RuntimeError):
    """The workshop cannot be served; the text says why and what to do."""


def choose_port(wanted: int | None) -> int:
    """The wanted port if it is free, the first free one from 2718 on if none is wanted; CannotServeError otherwise."""
    if wanted is not None and not 1 <= wanted <= 65535:
        raise CannotServeError(f"--port: a number from 1 to 65535 is wanted, got {wanted}")
    candidates = [wanted] if wanted is not None else range(FIRST_PORT, FIRST_PORT + 100)
    for port in candidates:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except PermissionError:
                raise CannotServeError(f"--port: {port} is not yours to open; choose one above 1023") from None
            except OSError:
                continue
            return port
    if wanted is not None:
        raise CannotServeError(f"--port: {wanted} is in use; choose another, or leave --port out")
    raise CannotServeError(f"no free port from {FIRST_PORT} to {FIRST_PORT + 99}: choose one with --port")


def editable_copy(directory: Path) -> Path:
    """The app, copied to where its owner may change it; a copy that is there already is kept."""
    directory.mkdir(exist_ok=True)
    for name in _FILES:
        if not (directory / name).exists():
            shutil.copyfile(Path(__file__).with_name(name), directory / name)
    return directory / "app.py"


def serve(port: int | None, *, edit: bool, browser: bool) -> int:
    """Serve until interrupted; marimo's exit status."""
    port = choose_port(port)
    token = secrets.token_urlsafe(16) if edit else None
    app = editable_copy(Path("online-softmax-workshop")) if edit else Path(__file__).with_name("app.py")
    url = f"http://{HOST}:{port}/" + (f"?access_token={token}" if token else "")
    server = _start(app, port, token)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        _wait_until_it_answers(server, port)
        print(f"The workshop is at {url}" + (f", its files at {app.parent}" if edit else "") + "; Ctrl-C ends it.")
        if browser and not webbrowser.open(url):
            print("No browser was found on this machine: open the address above in one.")
        return server.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        server.terminate()
        server.wait()


def _start(app: Path, port: int, token: str | None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "marimo", "--quiet", "--yes", "edit" if token else "run", str(app)]
    command += ["--host", HOST, "--port", str(port), "--headless"]
    # The token goes by standard input: a command line can be read by every user of the machine.
    command += ["--token-password-file", "-"] if token else ["--no-token"]
    environment = {**os.environ, "MARIMO_SKIP_UPDATE_CHECK": "1"}
    server = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, text=True)
    if server.stdin:
        server.stdin.write(token or "")
        server.stdin.close()
    return server


def _wait_until_it_answers(server: subprocess.Popen[str], port: int, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise CannotServeError(f"marimo ended at once, with status {server.returncode}; its own message is above")
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.1)
    raise CannotServeError(f"marimo did not answer on {HOST}:{port} within {seconds:.0f} s")
