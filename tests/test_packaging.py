"""``pip install .`` (not editable) into a fresh environment, used from another folder: everything is there,
and kernels are built into the user's cache."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from fusescope.core.paths import CHECKOUT

pytestmark = pytest.mark.slow

ATTENTION = """
import sys, fusescope
assert "torch" not in sys.modules, "importing fusescope imports torch"
assert "site-packages" in fusescope.__file__, fusescope.__file__
import torch
q, k, v = torch.randn(3, 1, 2, 40, 32)
mask = fusescope.masks.load("causal")
out = fusescope.attention(q, k, v, mask, impl="cpu")
expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-4)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of a copy of what git would clone; a build in the checkout would leave a build/ there."""
    base = tmp_path_factory.mktemp("wheel")
    source = base / "source"
    for name in ("backend", "cuda"):
        shutil.copytree(
            CHECKOUT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "requirements.txt"):
        shutil.copy(CHECKOUT / name, source)
    words = ["pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", base, source]
    subprocess.run([sys.executable, "-m", *words], check=True, timeout=120)
    return next(base.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """run(*words): the fresh environment's Python in a folder and home of its own. It sees this environment's
    packages, torch among them, but not the checkout."""
    base = tmp_path_factory.mktemp("user")
    venv.create(base / "venv", symlinks=True)
    python = base / "venv" / "bin" / "python"
    site = next(base.glob("venv/lib/python*/site-packages"))
    (site / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"])
    with zipfile.ZipFile(wheel) as archive:  # pure Python: installing it is unpacking it
        archive.extractall(site)
    env = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    env |= {"HOME": str(base), "XDG_CACHE_HOME": str(base / "cache"), "XDG_DATA_HOME": str(base / "data")}
    env |= {"FUSESCOPE_RUNTIME": str(base / "runtime"), "FUSESCOPE_WARM_IDLE_S": "5"}
    (base / "elsewhere").mkdir()

    def run(*words: str) -> str:
        done = subprocess.run(
            [python, *words], cwd=base / "elsewhere", env=env, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    run.base, run.cuda = base, site / "fusescope" / "cuda"
    return run


@pytest.fixture(scope="module")
def two_families(installed):
    """The same with add and attention alone: compiling the others would only take time."""
    for family in set(installed.cuda.iterdir()):
        if family.is_dir() and family.name not in ("common", "add", "attention"):
            shutil.rmtree(family)
    return installed


@pytest.mark.long
def test_the_wheel_has_everything_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"fusescope", f"fusescope-{version(wheel)}.dist-info"}
    wanted = [f"fusescope/{p.relative_to(CHECKOUT)}" for p in (CHECKOUT / "cuda").rglob("*.[ch]*")]
    package = CHECKOUT / "backend"
    wanted += [str(p.relative_to(package)) for p in package.rglob("*.json")]
    wanted += [str(p.relative_to(package)) for p in package.rglob("*.py")]
    assert not set(wanted) - set(names)


def test_doctor(installed):
    findings = {
        f["check"]: f for f in json.loads(installed("-m", "fusescope", "doctor", "--json"))["findings"]
    }
    assert findings["torch"]["status"] == "ok" and findings["header"]["status"] == "ok"


@pytest.mark.long
def test_attention_with_a_kernel_built_into_the_users_cache(two_families):
    two_families("-c", ATTENTION)
    assert list((two_families.base / "cache" / "fusescope" / "build").iterdir())


@pytest.mark.long
def test_bench_from_another_folder(two_families):
    words = [
        "bench",
        "add",
        "--impl",
        "cpu,eager",
        "--device",
        "cpu",
        "--case",
        "n=100000",
        "--budget",
        "0.2",
    ]
    answer = json.loads(two_families("-m", "fusescope", *words, "--cache", "warm", "--json"))
    assert {r["impl"] for r in answer["records"]} == {"cpu", "eager"}
    assert (two_families.base / "data" / "fusescope" / "profiles" / answer["run"] / "run.json").is_file()


def test_a_missing_package_is_named_by_the_wheels_own_metadata(installed):
    code = "from fusescope.core.doctor.requirements import requirement; print(requirement('plotly'))"
    assert re.fullmatch(r"plotly>=[\d.]+", installed("-c", code).strip())


def test_requirements_txt_pins_what_the_package_declares():
    """Both lists name the same packages, and every pinned version is one that the package accepts. What only
    the login node of a SLURM cluster needs is not installed with the app."""
    from packaging.requirements import Requirement

    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    declared = [
        *project["dependencies"],
        *(r for name, extra in project["optional-dependencies"].items() if name != "slurm" for r in extra),
    ]
    declared = {r.name: r.specifier for r in map(Requirement, declared)}
    lines = (
        line.partition("#")[0].strip() for line in (CHECKOUT / "requirements.txt").read_text().splitlines()
    )
    pinned = dict(line.split("==") for line in lines if line)
    assert pinned.keys() == declared.keys()
    assert not [n for n, v in pinned.items() if not declared[n].contains(v)]


def test_an_editable_install_is_a_plain_path():
    """make's own environment: a .pth with backend/, no import hook."""
    try:
        files = metadata.distribution("fusescope").files or []
    except metadata.PackageNotFoundError:
        pytest.skip("fusescope is not installed in this environment")
    hooks = [f for f in files if f.suffix == ".py" and "editable" in f.name]
    assert not hooks


def version(wheel: Path) -> str:
    return wheel.name.split("-")[1]
