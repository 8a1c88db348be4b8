"""Workers that SLURM starts, by dask-jobqueue; what to ask SLURM for is in a file of settings."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fusescope.core import paths, schema
from fusescope.core.schema import Parameter

VARIABLE = "FUSESCOPE_SLURM"
_ANSWER_S = 30.0  # in which a command of SLURM has to answer
SETTINGS = (
    Parameter("workers", "int", 1, "how many jobs, one worker and one device each", low=1, high=4096),
    Parameter("partition", "text", None),
    Parameter("account", "text", None),
    Parameter("walltime", "text", "01:00:00", "HH:MM:SS"),
    Parameter("cores", "int", 8, "of a worker", low=1),
    Parameter("memory", "text", "32GB", "of a worker"),
    Parameter("gres", "text", None, 'of a worker, such as "gpu:1"'),
    Parameter("interface", "text", None, 'the network that workers reach this machine by, such as "eth0"'),
    Parameter("logs", "text", None, "a folder that the nodes see, for what SLURM says of the jobs"),
    Parameter("python", "text", None, "of the nodes; default: this one's path"),
    Parameter("prologue", "names", (), 'lines of shell before the worker, such as "module load cuda"'),
    Parameter("directives", "names", (), 'further lines for #SBATCH, such as "--constraint=h200"'),
)


def settings() -> dict[str, Any]:
    """The file of settings ($FUSESCOPE_SLURM, else slurm.toml in the user's configuration), checked.
    ValueError in one sentence: no such file, no TOML, a setting that does not exist."""
    file = Path(os.environ.get(VARIABLE) or paths.user_folder("XDG_CONFIG_HOME", ".config") / "slurm.toml")
    try:
        given = tomllib.loads(file.read_text())
    except OSError as e:
        raise ValueError(f"SLURM needs a file of settings, {file} (docs/cluster.md): {e.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ValueError(f"{file} is not TOML: {e}") from None
    return schema.complete(str(file), SETTINGS, given)


def options(given: dict[str, Any], secured) -> dict[str, Any]:
    """The keywords of dask_jobqueue.SLURMCluster."""
    directives = [*given["directives"], *([f"--gres={given['gres']}"] if given["gres"] else ())]
    return {
        "queue": given["partition"],
        "account": given["account"],
        "walltime": given["walltime"],
        "cores": 1,
        "job_cpu": given["cores"],
        "processes": 1,
        "memory": given["memory"],
        "interface": given["interface"],
        "python": given["python"],
        "log_directory": _logs(given),
        "job_script_prologue": [*_exports(given["cores"]), *given["prologue"]],
        "job_extra_directives": directives,
        "scheduler_options": {"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        "worker_extra_args": ["--no-dashboard"],
        "protocol": "tls://",
        "security": secured,
    }


def _exports(cores: int) -> list[str]:
    """What a node's worker needs to know: this FuseScope, and of Dask's settings those that workers of this
    machine get from ``deploy.settings``. SLURM itself holds a job to its memory."""
    limits = ("TARGET", "SPILL", "PAUSE", "TERMINATE")
    values = {"PYTHONPATH": paths.python_path()}
    values |= {f"DASK_DISTRIBUTED__WORKER__MEMORY__{limit}": "False" for limit in limits}
    values |= {"DASK_DISTRIBUTED__WORKER__HTTP__ROUTES": "[]", "DASK_LOGGING__DISTRIBUTED": "critical"}
    values |= {"DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False"}
    values |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(cores))
    return [f"export {name}={shlex.quote(value)}" for name, value in values.items()]


@contextlib.contextmanager
def cluster(secured) -> Iterator[Any]:
    """A cluster whose workers are jobs of SLURM, cancelled when the block ends. ModuleNotFoundError, in one
    sentence, without dask-jobqueue; ValueError where SLURM does not take such jobs."""
    given = settings()
    try:
        from dask_jobqueue import SLURMCluster
    except ModuleNotFoundError as e:
        line = "--cluster slurm needs dask-jobqueue: pip install 'fusescope[slurm]'"
        raise ModuleNotFoundError(line, name=e.name) from None
    made = SLURMCluster(**options(given, secured))
    try:
        check_job(made.job_script())
        made.scale(jobs=given["workers"])
        yield made
    finally:
        with contextlib.suppress(Exception):
            made.close(timeout=10)


def ended(cluster: Any) -> str | None:
    """A sentence where every job of a cluster has ended, None while one waits or runs, or where SLURM does
    not say."""
    jobs = [worker.job_id for worker in cluster.workers.values() if getattr(worker, "job_id", None)]
    if len(jobs) < len(cluster.worker_spec):
        return None
    code, said = _ask("squeue", "--noheader", "--format=%i", f"--jobs={','.join(jobs)}")
    if said.split() and (code or set(said.split()) & set(jobs)):
        return None
    where = _logs(settings())
    return f"the jobs of SLURM ({', '.join(jobs)}) ended before a worker came; their logs are in {where}"


def check_job(script: str) -> None:
    """Have SLURM look at a job without starting it: what is wrong with one is said here, and by Dask
    nowhere."""
    code, said = _ask("sbatch", "--test-only", given=script)
    if code:
        lines = [line.removeprefix("sbatch: error: ") for line in said.splitlines() if line.strip()]
        raise ValueError(f"SLURM does not take such a job: {'; '.join(lines)[:300]}")


def _ask(*command: str, given: str | None = None) -> tuple[int, str]:
    """The exit code and what a command of SLURM said on either output; ValueError where there is none."""
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": _ANSWER_S}
    try:
        done = subprocess.run(command, input=given, check=False, **both)
    except OSError:
        raise ValueError(f"--cluster slurm needs {command[0]}: start it where jobs are submitted") from None
    except subprocess.TimeoutExpired:
        return 1, f"{command[0]} did not answer within {_ANSWER_S:g} s"
    return done.returncode, done.stdout


def _logs(given: dict[str, Any]) -> str:
    return given["logs"] or str(paths.user_folder("XDG_STATE_HOME", ".local/state") / "slurm")
