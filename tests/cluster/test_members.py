"""Scheduler and workers as commands, over TLS, and a comparison on them; mistakes are one sentence and leave
no process."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys

import pytest
from cluster_tools import WAIT_S, member

from fusescope.cli import main
from fusescope.core import paths
from fusescope.core.errors import Cancelled
from fusescope.jobs import submit
from fusescope.jobs.cluster import certificates, job, serve


@pytest.mark.slow
def test_a_comparison_over_tls(tmp_path, monkeypatch, reporter):
    certificates.make(tmp_path / "tls")
    monkeypatch.setenv(certificates.VARIABLE, str(tmp_path / "tls"))
    cases = [{"n": 100}, {"n": 200}]
    spec = {"op": "add", "impls": ["eager", "cpu"], "cases": cases, "cache": "warm", "min_samples": 5}
    spec |= {"budget_s": 0.05, "min_s": 0.01}
    # a name of this machine that is no loopback is not to be had everywhere: tls:// asks for TLS at 127.0.0.1
    with secured_scheduler() as address, member("worker", address, "--device", "cpu") as (worker, about):
        assert about["address"] == address and len(about["workers"]) == 1
        whole = submit.validate("bench", spec | {"cluster": address})
        job.run("bench", whole, "test", reporter)
        assert serve.listing(address)[0]["name"] == about["workers"][0]
    assert worker.returncode == 0, "it ends by itself when it is stopped"
    assert sorted((r.case["n"], r.impl, r.status) for r in reporter.records) == [
        (n, impl, "ok") for n in (100, 200) for impl in ("cpu", "eager")
    ]
    assert {r.conditions.host for r in reporter.records} == {os.uname().nodename}
    assert {r.speedup is not None for r in reporter.records} == {True}
    assert len(reporter.raw) == 4 and reporter.facts["workers"][0]["done"] == 2
    assert reporter.facts["device_name"], "the run's device is the worker's"


@contextlib.contextmanager
def secured_scheduler():
    """A scheduler of Dask on the loopback that wants certificates, in a process of its own."""
    script = (
        "import asyncio, sys\n"
        "from distributed import Scheduler\n"
        "from fusescope.jobs.cluster import certificates, deploy\n"
        "from fusescope.jobs.spec.cluster import parse\n"
        "async def serve():\n"
        "    secured = certificates.security(parse('tls://127.0.0.1:1'))\n"
        "    options = dict(host='127.0.0.1', port=0, protocol='tls://', security=secured)\n"
        "    async with Scheduler(**options, **deploy.QUIET) as made:\n"
        "        print(made.address, flush=True)\n"
        "        await asyncio.to_thread(sys.stdin.read)\n"
        "asyncio.run(serve())\n"
    )
    env = os.environ | {"PYTHONPATH": paths.python_path()}
    process = subprocess.Popen(
        [sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(WAIT_S)
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_port_that_is_taken(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["cluster", "scheduler", "--port", str(port)]) == 2
    err = capsys.readouterr().err
    assert f"port {port} of 127.0.0.1 is taken; choose another with --port" in err and "Traceback" not in err


@pytest.mark.parametrize(
    "words, sentence",
    [
        (("scheduler", "--host", "0.0.0.0"), "needs TLS"),
        (("scheduler", "--port", "99999"), "99999"),
        (("worker", "local:2"), "a worker joins a scheduler"),
        (("worker", "tcp://10.0.0.1:1"), "needs TLS"),
        (("worker", "tcp://127.0.0.1:1", "--device", "cuda:99"), "there is no device 'cuda:99' here"),
        (("workers", "nowhere"), "a cluster is local"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, monkeypatch, capsys, words, sentence):
    monkeypatch.setenv(certificates.VARIABLE, str(tmp_path))
    try:
        code = main(["cluster", *words])
    except SystemExit as e:
        code = e.code
    err = capsys.readouterr().err
    assert code == 2 and sentence in err and err.count("\n") == 1


def test_the_verb_makes_certificates(tmp_path, capsys):
    folder = tmp_path / "new" / "tls"
    assert main(["cluster", "certificates", str(folder), "--days", "2", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["days"] == 2 and sorted(data["files"]) == sorted(map(str, folder.iterdir()))
    assert main(["cluster", "certificates", str(folder)]) == 2


def test_a_scheduler_says_its_address_and_ends_with_its_wait(monkeypatch, capsys):
    """In this process; as a command it is in test_a_comparison_over_tls and in the faults."""

    async def at_once(*ends):
        for end in ends:
            end.close()

    monkeypatch.setattr(serve, "_until_stopped", at_once)
    assert main(["cluster", "scheduler", "--host", "127.0.0.1", "--port", "0"]) == 0
    said = capsys.readouterr().out
    assert "scheduler at tcp://127.0.0.1:" in said and "fusescope cluster worker tcp://127.0.0.1:" in said


def test_what_a_worker_says_while_another_has_its_device(monkeypatch):
    from types import SimpleNamespace

    from fusescope.jobs.cluster import at_worker

    places, closed, said = [2, 1, 0], [], []
    ticket = SimpleNamespace(advance=lambda: places.pop(0), close=lambda: closed.append(True))
    here = object.__new__(at_worker._Here)
    here.order, here.worker, here.task = {"lock": "GPU-1", "run": "r", "topic": "t"}, None, "task"
    here.ticket, here.unit, here.said_at, here.begun_at = None, "u", 0.0, 0.0
    state = SimpleNamespace(state="executing")
    here.worker = SimpleNamespace(
        state=SimpleNamespace(tasks={"task": state}),
        log_event=lambda topic, about: said.append(about["text"]),
    )
    monkeypatch.setattr(at_worker, "Ticket", lambda lock, name: ticket)
    monkeypatch.setattr(at_worker, "_POLL_S", 0.0)
    here.wait_for_device()
    assert said == ["queued on its device, 2 ahead"], "once a second at most"
    state.state = "cancelled"
    with pytest.raises(Cancelled):
        here.check()
    here.end()
    listener = at_worker._Listener(here)
    listener.log("process 1: busy")
    assert closed and listener.lines == ["busy"]
