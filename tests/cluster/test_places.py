"""What names a cluster, whose devices local workers get, and the certificates: no cluster is started."""

from __future__ import annotations

import ssl
import stat
import sys
from types import SimpleNamespace

import pytest

from fusescope.cli import errors
from fusescope.core.machine import environment
from fusescope.jobs import kinds, submit
from fusescope.jobs.cluster import certificates, deploy, slurm
from fusescope.jobs.spec.cluster import CLUSTER, Place, is_loopback, local_device, parse


def test_forms():
    assert parse("local") == Place("local") and parse("local:3").workers == 3
    assert parse("tcp://gpu-1.example.org:8786") == Place("address", None, "tcp", "gpu-1.example.org", 8786)
    assert parse("tls://[::1]:1").host == "::1" and parse("slurm").how == "slurm"
    assert CLUSTER.check("") is None


@pytest.mark.parametrize(
    "text",
    [
        *("local:0", "local:-1", "local:257", "local:", "local:two", "Local", "tcp://host", "tcp://host:0"),
        *("tcp://host:70000", "http://host:1", "tcp://a b:1", "tcp://host:1/x", "tcp://$(id):1", "slurm:2"),
    ],
)
def test_what_is_no_cluster(text):
    with pytest.raises(ValueError, match="not"):
        parse(text)
    spec = {"op": "add", "impls": ["eager"], "cases": [{"n": 8}], "cluster": text}
    with pytest.raises(ValueError):
        submit.validate("bench", spec)


def test_a_specification_without_a_cluster_is_as_before():
    whole = submit.validate("bench", {"op": "add", "impls": ["eager"], "cases": [{"n": 8}], "cluster": None})
    assert "cluster" not in whole


def test_whose_device_a_job_holds():
    assert local_device({"cluster": "local:2"}, "cpu") == "cpu"
    assert local_device({"cluster": "local:2"}, "cuda:0") is None
    assert local_device({"cluster": "tcp://127.0.0.1:1"}, "cpu") is None
    assert local_device({}, "cuda:0") == "cuda:0"


def test_a_device_elsewhere_need_not_be_here():
    spec = {"op": "add", "impls": ["eager"], "cases": [{"n": 8}], "device": "cuda"}
    whole = submit.validate("bench", spec | {"cluster": "tls://gpubox:8786"})
    assert whole["device"] == "cuda:0" and kinds.load("bench").device(whole) == "cuda:0"
    with pytest.raises(ValueError, match="one device"):
        submit.validate("bench", spec | {"cluster": "tls://gpubox:8786", "device": "cuda:1"})
    if environment.devices() == ["cpu"]:
        with pytest.raises(ValueError, match="no device"):
            submit.validate("bench", spec | {"cluster": "local"})


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_local_workers_share_the_cores(monkeypatch, count):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)))
    shares = [list(map(int, e[deploy.CORES].split(","))) for e in deploy.environments(count, "cpu").values()]
    assert len(shares) == count and {core for share in shares for core in share} <= set(range(6))
    if count <= 6:
        assert sorted(core for share in shares for core in share) == list(range(6))


def test_local_workers_have_a_gpu_each(monkeypatch):
    gpus = [{"uuid": f"GPU-{n}", "name": "NVIDIA H200"} for n in range(3)]
    monkeypatch.setattr(environment, "visible_gpus", lambda: gpus)
    found = deploy.environments(None, "cuda:0")
    assert [e["CUDA_VISIBLE_DEVICES"] for e in found.values()] == ["GPU-0", "GPU-1", "GPU-2"]
    assert list(found) == ["worker 1", "worker 2", "worker 3"] and len(deploy.environments(2, "cuda:0")) == 2
    with pytest.raises(ValueError, match="local:4 is a worker a GPU"):
        deploy.environments(4, "cuda:0")
    monkeypatch.setattr(environment, "visible_gpus", list)
    with pytest.raises(ValueError, match="the GPUs here are none"):
        deploy.environments(None, "cuda:0")


def test_loopback():
    assert is_loopback("127.0.0.1") and is_loopback("localhost") and is_loopback("127.8.9.1")
    assert not is_loopback("10.0.0.1") and not is_loopback("no-such-host.invalid")


def test_certificates(tmp_path, monkeypatch):
    folder = tmp_path / "tls"
    files = certificates.make(folder)
    assert (
        {f.name for f in files}
        == {"ca.pem", "node.pem", "node-key.pem"}
        == {f.name for f in folder.iterdir()}
    )
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(f.stat().st_mode) for f in files} == {0o600}
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "node.pem", folder / "node-key.pem")  # they belong together
    with pytest.raises(ValueError, match="already"):
        certificates.make(folder)
    monkeypatch.setenv(certificates.VARIABLE, str(folder))
    secured = certificates.security(parse("tcp://10.0.0.1:8786"))
    assert secured.require_encryption and secured.tls_client_key == str(folder / "node-key.pem")
    (folder / "node-key.pem").chmod(0o640)
    with pytest.raises(ValueError, match="may be read by other users"):
        certificates.security(parse("tls://localhost:8786"))


@pytest.mark.parametrize("text", ["tcp://10.0.0.1:8786", "tls://127.0.0.1:8786", "slurm"])
def test_without_certificates_nothing_leaves_this_machine(tmp_path, profiles, monkeypatch, text):
    monkeypatch.setenv(certificates.VARIABLE, str(tmp_path))
    with pytest.raises(ValueError, match=r"lacks ca\.pem, node\.pem, node-key\.pem: make them once with"):
        certificates.security(parse(text))
    spec = {"op": "add", "impls": ["cpu"], "cases": [{"n": 8}], "device": "cpu"}
    with pytest.raises(ValueError, match="make them once with"):
        submit.submit("bench", spec | {"cluster": text})
    assert not list(profiles.iterdir()), "no run is made"
    assert certificates.security(parse("tcp://127.0.0.1:8786")) is None
    assert certificates.security(parse("local")).require_encryption


@pytest.mark.slow
def test_nobody_at_the_address(monkeypatch):
    monkeypatch.setattr(deploy, "ANSWER_S", 1.0)
    with (
        pytest.raises(ValueError, match=r"no scheduler of Dask answers at tcp://127\.0\.0\.1:9 within 1 s"),
        deploy.client(parse("tcp://127.0.0.1:9"), "cpu"),
    ):
        pass


def test_workers_that_do_not_start_are_one_sentence(monkeypatch):
    deploy.need()

    def late(*_, **__):
        raise AssertionError("Status.starting")  # as Dask says it

    monkeypatch.setattr("distributed.deploy.spec.SpecCluster", late)
    with (
        pytest.raises(RuntimeError, match=r"^the 2 local workers did not start \(AssertionError\); ask"),
        deploy.client(parse("local:2"), "cpu"),
    ):
        pass


@pytest.mark.parametrize(
    "text, sentence",
    [
        (None, "SLURM needs a file of settings"),
        ("workers = ", "is not TOML"),
        ("workers = 0", "workers must be an integer from 1"),
        ("gpus = 4", "takes workers, partition"),
    ],
)
def test_settings_of_slurm(tmp_path, monkeypatch, text, sentence):
    file = tmp_path / "slurm.toml"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv(slurm.VARIABLE, str(file))
    with pytest.raises(ValueError, match=sentence):
        slurm.settings()


def test_what_slurm_is_asked_for(tmp_path, monkeypatch):
    file = tmp_path / "slurm.toml"
    file.write_text('workers = 4\npartition = "gpu"\ngres = "gpu:1"\ndirectives = ["--constraint=h200"]\n')
    monkeypatch.setenv(slurm.VARIABLE, str(file))
    found = slurm.options(slurm.settings(), None)
    assert found["job_extra_directives"] == ["--constraint=h200", "--gres=gpu:1"] and found["queue"] == "gpu"
    assert found["processes"] == found["cores"] == 1, "a worker a job, a device a worker"


def test_the_script_that_slurm_is_given(tmp_path, monkeypatch):
    """As dask-jobqueue writes it, where it is installed."""
    jobqueue = pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is an extra of clusters with SLURM")
    import dask

    file = tmp_path / "slurm.toml"
    file.write_text(
        'partition = "gpu"\naccount = "me"\ngres = "gpu:1"\nwalltime = "00:30:00"\ncores = 8\n'
        'memory = "32GB"\n'
        'interface = "lo"\npython = "/opt/py/bin/python"\nprologue = ["module load cuda"]\n'
        'directives = ["--constraint=h200"]\n'
    )
    monkeypatch.setenv(slurm.VARIABLE, str(file))
    monkeypatch.setenv(certificates.VARIABLE, str(tmp_path / "tls"))
    monkeypatch.setattr("fusescope.core.paths.python_path", lambda: "/home/a b/backend")
    certificates.make(tmp_path / "tls")
    with dask.config.set(deploy.settings()):
        made = jobqueue.SLURMCluster(**slurm.options(slurm.settings(), certificates.security(parse("slurm"))))
        try:
            lines = made.job_script().splitlines()
        finally:
            made.close()
    asked = {line for line in lines if line.startswith("#SBATCH")}
    assert asked >= {f"#SBATCH {word}" for word in ("-p gpu", "-A me", "-n 1", "--cpus-per-task=8")}
    assert asked >= {f"#SBATCH {word}" for word in ("-t 00:30:00", "--constraint=h200", "--gres=gpu:1")}
    assert "export PYTHONPATH='/home/a b/backend'" in lines, "quoted"
    assert lines.index("module load cuda") == len(lines) - 2 and "export OMP_NUM_THREADS=8" in lines
    command = lines[-1]
    assert command.startswith("/opt/py/bin/python -m distributed.cli.dask_worker tls://127.0.0.1:")
    assert "--no-dashboard" in command and f"--tls-key {tmp_path / 'tls' / 'node-key.pem'}" in command


def command(folder, name, text):
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def test_what_slurm_refuses_is_said_before_anything_waits(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    command(tmp_path, "sbatch", 'echo "sbatch: error: invalid partition specified: x" >&2; exit 1')
    with pytest.raises(ValueError, match=r"does not take such a job: invalid partition specified: x$"):
        slurm.check_job("#!/bin/sh")
    command(tmp_path, "sbatch", 'cat > "$0.given"; [ "$1" = --test-only ]')
    slurm.check_job("#!/bin/sh\nexit")
    assert (tmp_path / "sbatch.given").read_text() == "#!/bin/sh\nexit"
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(ValueError, match="needs sbatch"):
        slurm.check_job("")


def test_jobs_that_ended_before_a_worker_came_are_said(tmp_path, monkeypatch):
    file = tmp_path / "slurm.toml"
    file.write_text(f'logs = "{tmp_path}"\n')
    monkeypatch.setenv(slurm.VARIABLE, str(file))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    made = SimpleNamespace(workers={n: SimpleNamespace(job_id=n) for n in ("7", "8")}, worker_spec=("a", "b"))
    command(tmp_path, "squeue", "echo 8")
    assert slurm.ended(made) is None, "one waits or runs"
    command(tmp_path, "squeue", "exit 0")
    assert (
        slurm.ended(made)
        == f"the jobs of SLURM (7, 8) ended before a worker came; their logs are in {tmp_path}"
    )
    command(tmp_path, "squeue", "echo slurm_load_jobs error: no answer; exit 1")
    assert slurm.ended(made) is None, "SLURM does not say"
    made.workers.popitem()
    command(tmp_path, "squeue", "exit 0")
    assert slurm.ended(made) is None, "not all are submitted yet"


def test_without_dask_the_package_to_install_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ModuleNotFoundError, match="needs Dask: pip install") as caught:
        deploy.need()
    code, said = errors.explain(["cluster", "workers"], caught.value)
    assert code == 1 and said.startswith("cluster workers needs distributed, which is not installed here: ")
    assert "fault" not in said
