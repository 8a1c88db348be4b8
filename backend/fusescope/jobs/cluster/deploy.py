"""A client of a cluster: one made on this machine for a single job, one that runs, or one in SLURM."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from fusescope.core import paths
from fusescope.core.machine import environment
from fusescope.jobs.cluster import certificates, slurm
from fusescope.jobs.process import scratch
from fusescope.jobs.spec.cluster import Place

ANSWER_S = 10.0  # in which a scheduler has to answer
START_S = 180.0  # in which a local worker has to start: seconds, on a busy machine minutes
RETURN_S = 45.0  # in which a worker that was killed may come back, before another takes its place
CORES = "FUSESCOPE_CLUSTER_CORES"
"""Set for each local worker on the CPU: the cores that are its own, with commas."""


QUIET = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
"""Of each scheduler and worker: Dask's HTTP server asks nobody who he is; it serves nothing, here alone."""


def need() -> None:
    """ModuleNotFoundError, in one sentence, where Dask is not installed. Dask's own log is silent, also that
    of the processes that it starts: what matters is said in the run's log."""
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical")
    os.environ.setdefault("DASK_LOGGING__TORNADO", "critical")
    try:
        import distributed  # noqa: F401
    except ModuleNotFoundError as e:
        line = "a cluster needs Dask: pip install 'fusescope[cluster]'"
        raise ModuleNotFoundError(line, name=e.name) from None


def settings() -> dict[str, Any]:
    """Dask's settings for clusters of ours: no limit of memory (a reference in float64 may be large), no
    variables that would make kernels on the CPU use one thread, no wish for a dashboard, and no watching of
    itself (a sample of each worker's stacks every 10 ms, of the GIL every ms) beside what is measured."""
    return {
        "distributed.nanny.pre-spawn-environ": {},
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
        "distributed.comm.timeouts.connect": f"{ANSWER_S:g}s",
        "distributed.admin.tick.limit": "60s",
        "distributed.admin.system-monitor.interval": "10s",
        "distributed.admin.system-monitor.disk": False,
        "distributed.admin.system-monitor.gil.enabled": False,
        "distributed.worker.profile.enabled": False,
        "distributed.scheduler.work-stealing": False,
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
        "distributed.deploy.lost-worker-timeout": f"{RETURN_S:g}s",
    }


@contextlib.contextmanager
def client(place: Place, device: str) -> Iterator[Any]:
    """A connected ``distributed.Client``; what was started for it is gone when the block ends.

    ValueError, in one sentence: no such devices, no certificates, nobody at the address.
    """
    need()
    import dask

    secured = certificates.security(place)
    with dask.config.set(settings()), contextlib.ExitStack() as stack:
        if place.how == "address":
            scheme = "tls" if secured else "tcp"
            target = f"{scheme}://{f'[{place.host}]' if ':' in place.host else place.host}:{place.port}"
        elif place.how == "slurm":
            target = stack.enter_context(slurm.cluster(secured))
        else:
            target = stack.enter_context(_local(place, device, secured))
        yield stack.enter_context(_connected(target, secured, direct=place.how == "local"))


def mend(client) -> None:
    """Have the workers that were lost for good replaced, where the cluster was made for this job. A worker
    that is killed comes back by itself, unless that was while it was starting."""
    if (cluster := client.cluster) is not None:
        cluster.scale(len(cluster.worker_spec))


def hopeless(client) -> str | None:
    """A sentence where no worker can come any more to a cluster made for this job; None where one may."""
    cluster = client.cluster
    return slurm.ended(cluster) if hasattr(cluster, "job_script") else None


@contextlib.contextmanager
def _connected(target, secured, direct: bool) -> Iterator[Any]:
    """direct: whether workers can be reached from here, so that answers need not go through the scheduler."""
    from distributed import Client

    try:
        options = {"timeout": ANSWER_S, "set_as_default": False, "direct_to_workers": direct or None}
        made = Client(target, security=secured, **options)
    except (OSError, TimeoutError, RuntimeError) as e:
        about = f": {' '.join(str(e).split())[:200]}" if not isinstance(e, OSError) else ""
        raise ValueError(
            f"no scheduler of Dask answers at {target} within {ANSWER_S:g} s{about}; start one there with "
            "fusescope cluster scheduler, and mind that both sides need TLS or neither"
        ) from None
    try:
        yield made
    finally:
        with contextlib.suppress(Exception):
            made.close(timeout=2)


@contextlib.contextmanager
def _local(place: Place, device: str, secured) -> Iterator[Any]:
    from distributed import Nanny, Scheduler
    from distributed.deploy.spec import SpecCluster

    shared = {"host": "127.0.0.1", "security": secured, "protocol": "tls://"}
    options = shared | {"nthreads": 1, "memory_limit": None, "death_timeout": START_S} | QUIET
    with scratch.folder(scratch.CLUSTER) as home:
        options |= {"local_directory": str(home)}
        each = environments(place.workers, device)
        try:
            cluster = SpecCluster(
                scheduler={"cls": Scheduler, "options": shared | QUIET | {"port": 0}},
                workers={
                    name: {"cls": Nanny, "options": options | {"env": env}} for name, env in each.items()
                },
                security=secured,
                silence_logs=60,
            )
        except Exception as e:  # of a worker that did not come, whatever Dask makes of it
            raise RuntimeError(
                f"the {len(each)} local workers did not start ({type(e).__name__}); ask for fewer, or resume "
                f"the run when the machine is less busy: each has {START_S:g} s"
            ) from e
        try:
            yield cluster
        finally:
            with contextlib.suppress(Exception):
                cluster.close(timeout=10)


def environments(count: int | None, device: str) -> dict[str, dict[str, str]]:
    """{name of a worker: what it has beyond this process's variables}: a GPU each, which is cuda:0 to it, or
    a share of the cores each. ValueError where there are fewer GPUs than workers were asked for."""
    cores = sorted(os.sched_getaffinity(0))
    common = {"PYTHONPATH": paths.python_path()}
    if device == "cpu":
        count = count or max(2, len(cores) // 2)
        shares = [cores[n * len(cores) // count : (n + 1) * len(cores) // count] for n in range(count)]
        return {
            f"worker {n + 1}": common | {CORES: ",".join(map(str, share or cores))}
            for n, share in enumerate(shares)
        }
    there = environment.visible_gpus()
    if not there or (count or 1) > len(there):
        names = ", ".join(f"cuda:{n} ({gpu['name']})" for n, gpu in enumerate(there)) or "none"
        raise ValueError(f"local:{count or 1} is a worker a GPU, and the GPUs here are {names}")
    count = count or len(there)
    threads = str(max(1, len(cores) // count))
    names = ("FUSESCOPE_JOBS", "OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")
    common |= dict.fromkeys(names, threads) | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return {
        f"worker {n + 1}": common | {"CUDA_VISIBLE_DEVICES": gpu["uuid"]}
        for n, gpu in enumerate(there[:count])
    }
