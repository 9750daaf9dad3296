import socket
import urllib.error
import urllib.request

import pytest
from tests.workshop.browser import free_port, start, stop

from online_softmax.cli import main
from online_softmax.workshop.server import CannotServeError, choose_port, editable_copy


def test_a_port_in_use_gets_a_plain_message(capsys):
    pytest.importorskip("marimo")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["workshop", "--no-browser", "--port", str(port)]) == 2
    assert f"--port: {port} is in use; choose another" in capsys.readouterr().err


@pytest.mark.parametrize("port", [0, -1, 70000])
def test_a_number_that_is_no_port_is_refused(port):
    with pytest.raises(CannotServeError, match=f"from 1 to 65535 is wanted, got {port}"):
        choose_port(port)


def test_without_a_port_the_first_free_one_is_taken(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr("online_softmax.workshop.server.FIRST_PORT", taken.getsockname()[1])
        assert choose_port(None) > taken.getsockname()[1]


def test_it_listens_on_the_loopback_address_only():
    pytest.importorskip("marimo")
    port = free_port()
    process, url = start(port)
    try:
        assert url == f"http://127.0.0.1:{port}/"
        with urllib.request.urlopen(url) as page:
            assert b"Online softmax" in page.read()
        # Were it listening on every address, this one of the same network would answer.
        with socket.socket() as other, pytest.raises(ConnectionRefusedError):
            other.connect(("127.0.0.2", port))
    finally:
        stop(process)


def test_edit_asks_for_a_token_and_copies_the_app(tmp_path):
    pytest.importorskip("marimo")
    process, url = start(free_port(), edit=True, directory=tmp_path)
    try:
        assert "?access_token=" in url
        assert (tmp_path / "online-softmax-workshop" / "app.py").exists()
        with urllib.request.urlopen(url) as page:
            assert page.status == 200
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url.partition("?")[0] + "api/status")
        refused.value.close()
        assert refused.value.code in (401, 403)
    finally:
        stop(process)


def test_a_copy_that_is_there_is_kept(tmp_path):
    app = editable_copy(tmp_path)
    app.write_text("mine")
    assert editable_copy(tmp_path).read_text() == "mine"
    assert (tmp_path / "style.css").exists()


def test_no_browser_gets_a_plain_message(monkeypatch, capsys):
    from online_softmax.workshop import server

    class Ended:
        returncode = 0
        poll = staticmethod(lambda: None)
        wait = staticmethod(lambda: 0)
        terminate = staticmethod(lambda: None)

    monkeypatch.setattr(server, "_start", lambda *_: Ended())
    monkeypatch.setattr(server, "_wait_until_it_answers", lambda *_: None)
    monkeypatch.setattr(server.webbrowser, "open", lambda _: False)
    monkeypatch.setattr(server.signal, "signal", lambda *_: None)
    assert server.serve(None, edit=False, browser=True) == 0
    assert "No browser was found" in capsys.readouterr().out


def test_a_missing_package_is_named_with_the_extra_that_brings_it(monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "marimo", None)
    assert main(["workshop"]) == 2
    assert "pip install 'online-softmax[workshop]'" in capsys.readouterr().err
