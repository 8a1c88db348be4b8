"""However the server is started, nobody is let in before the door is there."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
import websockets.sync.client
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from fusescope.core.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.mark.long
def test_nothing_is_served_between_the_first_connection_and_the_door(start):
    """Requests without a token, from before the port is open until the app has been loaded."""
    live = start(wait=False)
    answers, end, up = [], time.monotonic() + 60, None
    while time.monotonic() < end and (len(answers) <= 20 or time.monotonic() < up + 2):
        for attempt in (
            lambda: live.ask("GET", "/")[0],
            lambda: live.ask("GET", "/_stcore/host-config")[0],
            lambda: live.websocket(origin=f"http://127.0.0.1:{live.port}"),
        ):
            try:
                answers.append(attempt())
                up = up or time.monotonic()
            except OSError:
                pass
        time.sleep(0.01)
    assert len(answers) > 20 and set(answers) <= {401, 403}


@pytest.mark.long
def test_a_restart_keeps_the_cookie_and_no_token_says_what_it_gives_up(start):
    live = start()
    _, headers, _ = live.ask("GET", f"/?token={live.token}")
    kept = headers["set-cookie"].partition(";")[0]
    live.stop()
    again = start(port=live.port, FUSESCOPE_STATE=str(live.home / "state"))
    assert again.token == live.token and again.ask("GET", "/", cookie=kept)[0] == 200
    again.stop()
    free = start(FUSESCOPE_NO_TOKEN="1")
    assert "can run files as" in free.log.read_text() and not free.token
    assert free.ask("GET", "/")[0] == 200 and free.ask("GET", "/", host="evil.example")[0] == 403
    assert free.websocket(origin="http://127.0.0.1:1") == 403


@pytest.mark.parametrize("before", (signal.SIG_DFL, signal.SIG_IGN), ids=("in front", "behind"))
def test_ctrl_c_ends_the_server_in_one_line(tmp_path, before):
    """It said "Aborted!", listed sixty references that DuckDB's binding had left, and failed; started in the
    background, where a shell has the signal ignored, it listed them too."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    own = {f"FUSESCOPE_{name}": str(tmp_path / name.lower()) for name in ("PROFILES", "RUNTIME", "STATE")}
    log = tmp_path / "server.log"
    with log.open("wb") as out:
        command = [sys.executable, "scripts/serve.py", "--port", port]
        server = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | own,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, before),
        )
    try:
        end = time.monotonic() + 60
        while "FuseScope: http" not in log.read_text() and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(1)
        os.killpg(server.pid, signal.SIGINT)
        assert server.wait(30) == 0
    finally:
        server.kill()
    assert log.read_text().split("same address")[-1].strip() == "FuseScope has stopped."


@pytest.mark.long
def test_below_a_prefix_behind_a_proxy_of_another_name(start):
    live = start("--server.baseUrlPath", "gpu/fuse", "--server.allowedHosts", "lab.example")
    assert live.ask("GET", "/gpu/fuse/", host="other.example")[0] == 403
    name = {"host": "lab.example", "x_forwarded_proto": "https"}
    _, headers, _ = live.ask("GET", f"/gpu/fuse/?token={live.token}", **name)
    assert "path=/gpu/fuse" in headers["set-cookie"].lower() and "secure" in headers["set-cookie"].lower()
    name["cookie"] = headers["set-cookie"].partition(";")[0]
    assert f"/gpu/fuse/?token={live.token}" in live.log.read_text()
    for path in ("", "_stcore/health", "perfetto/index.html", "kernels"):
        assert live.ask("GET", f"/gpu/fuse/{path}", **name)[0] == 200, path
    stream = "/gpu/fuse/_stcore/stream"
    assert live.websocket(stream, origin="https://lab.example", **name) == 101
    assert live.websocket(stream, origin="http://lab.example", **name) == 403
    status, _, text = live.ask("GET", "/gpu/fuse/files/20260101-000000-bench-abcdef/x", **name)
    assert status == 404 and "20260101" in text  # our route answered


def drawn(live, **headers) -> str:
    """All that a page sends to a visitor who runs it once."""
    address = f"ws://127.0.0.1:{live.port}/_stcore/stream"
    origin = f"http://127.0.0.1:{live.port}"
    with websockets.sync.client.connect(
        address, origin=origin, subprotocols=["streamlit"], additional_headers=headers, max_size=None
    ) as socket:
        message = BackMsg()
        message.rerun_script.query_string = ""
        socket.send(message.SerializeToString())
        texts = []
        while True:
            got = ForwardMsg()
            got.ParseFromString(socket.recv(timeout=60))
            texts.append(str(got))
            if got.WhichOneof("type") == "script_finished":
                return "\n".join(texts)


def test_a_page_started_without_the_app_draws_nothing(start):
    """streamlit run pages/kernels.py has no door of ours: the page refuses."""
    said = drawn(start(script="pages/kernels.py"))
    assert "lets everybody in" in said and "Run" not in said and "operator" not in said


@pytest.mark.long
def test_the_app_draws_for_who_has_the_token(start):
    live = start()
    assert "lets everybody in" not in drawn(live, Authorization=f"Bearer {live.token}")


def test_a_token_that_is_too_short_is_one_sentence(tmp_path):
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", "0"]
    done = subprocess.run(
        command,
        env={"FUSESCOPE_TOKEN": "short", "HOME": str(tmp_path), "PATH": "/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and done.stderr.strip().splitlines()[-1].startswith("FUSESCOPE_TOKEN must be")
    assert "Traceback" not in done.stderr
