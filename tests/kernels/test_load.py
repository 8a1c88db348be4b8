"""Loading and calling, in fresh processes as jobs do."""

from __future__ import annotations

import json
import shutil
import textwrap

import pytest

pytestmark = pytest.mark.slow


def run(project, code: str, **environment: str) -> str:
    done = project.torch(
        "from fusescope import kernels\nimport torch\n" + textwrap.dedent(code), **environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_and_reading_reports_needs_no_torch(project):
    code = (
        "import sys\nfrom fusescope import kernels\nfrom fusescope.kernels import build, report, inspect\n"
        "kernels.register_fakes({}); report.state(); report.latest()\n"
        "print([m for m in ('torch', 'numpy', 'pandas') if m in sys.modules])"
    )
    done = project.python(code)
    assert done.stdout == "[]\n", done.stderr


def test_call_runs_the_kernel_and_builds_it_first_where_needed(project):
    project.edit(project.add / "cpu.cpp", "n > 16384", "n > 16385")
    out = run(
        project,
        """
        a, b = torch.randn(1001), torch.randn(1001)
        for impl in ("cpu", "auto"):
            assert torch.equal(kernels.call("add", a, b, impl=impl), a + b)
        kernels.load("cpu")
        print(kernels.choose("add", "cpu"), kernels.load.__name__)
        """,
    )
    assert out == "cpu load\n"


@pytest.mark.long
def test_a_call_builds_and_loads_its_own_family_alone(project):
    more = project.cuda / "more"
    shutil.copytree(project.add, more)
    binding = more / "binding.cpp"
    binding.write_text(binding.read_text().replace('"add(', '"more(').replace('"add"', '"more"'))
    out = run(
        project,
        """
        from fusescope.kernels import report
        a = torch.ones(3)
        print(kernels.call("add", a, a, impl="cpu").sum().item(), report.state()["more"]["cpu"]["status"])
        print(kernels.call("more", a, a, impl="cpu").sum().item(), report.state()["more"]["cpu"]["status"])
        try: kernels.load("cpu", ("moore",))
        except ValueError as error: print(error)
        """,
    )
    assert out.splitlines() == [
        "6.0 not built",
        "6.0 built",
        "there is no kernel family moore; known: add, more",
    ]


CALLS = """
import json, re, sys
from fusescope.core.errors import Unsupported

def said(ask, kind):
    try: ask()
    except kind as error: return str(error)

a, double = torch.ones(3), torch.ones(3, dtype=torch.float64)
x = torch.tensor([float("nan"), float("inf"), float("inf"), 65504.0])
y = torch.tensor([1.0, 1.0, float("-inf"), 65504.0])
ieee = []
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    ours, theirs = kernels.call("add", x.to(dtype), y.to(dtype), impl="cpu"), x.to(dtype) + y.to(dtype)
    ieee.append(torch.equal(ours.isnan(), theirs.isnan()) and torch.equal(ours.isinf(), theirs.isinf()))
print(json.dumps({
    "dtype": said(lambda: kernels.call("add", double, double, impl="cpu"), Unsupported),
    "impl": said(lambda: kernels.call("add", a, a, impl="v9_none"), Unsupported),
    "operator": said(lambda: kernels.call("mul", a, a, impl="cpu"), ValueError),
    "family": said(lambda: kernels.choose("mul", "cpu"), ValueError),
    "device": said(lambda: kernels.load("tpu"), ValueError),
    "no gpu": said(lambda: kernels.load("cuda"), Unsupported),
    "openmp runtimes": len(set(re.findall(r"\\S*libgomp\\S*", open("/proc/self/maps").read()))),
    "ieee": ieee,
}))
"""


@pytest.fixture(scope="module")
def calls(untouched):
    """What one process answered to calls that go wrong in several ways, and to NaN and infinities."""
    return json.loads(run(untouched, CALLS))


def test_refusals_are_unsupported_with_the_reason_alone(calls):
    assert calls["dtype"] == "dtype (float32, float16 and bfloat16 are)"
    assert calls["impl"] == "no implementation 'v9_none' of add is built for this device"


def test_names_that_do_not_exist_are_value_errors(calls):
    assert calls["operator"] == "there is no operator fusescope::mul"
    assert calls["family"] == "there is no kernel family 'mul'; known: add"
    assert calls["device"] == "a device type is cpu or cuda, not 'tpu'"


def test_cuda_without_a_gpu_is_unsupported(calls):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert "no CUDA device" in calls["no gpu"] and "doctor" in calls["no gpu"]


def test_nan_and_infinities_follow_ieee(calls):
    assert calls["ieee"] == [True, True, True]


def test_one_openmp_runtime_serves_torch_and_the_kernels(calls):
    assert calls["openmp runtimes"] == 1


def test_a_process_whose_sources_changed_says_so_and_goes_on_with_the_old(project):
    out = run(
        project,
        """
        import os, pathlib
        from fusescope.core.errors import BuildError
        a = torch.ones(3)
        kernels.load("cpu")
        file = pathlib.Path(os.environ["FUSESCOPE_CUDA"], "add", "cpu.cpp")
        file.write_text(file.read_text() + "// edited")
        try: kernels.load("cpu")
        except BuildError as error: print(error)
        print(kernels.call("add", a, a, impl="cpu").sum().item())
        """,
    )
    assert (
        "changed after this process loaded them" in out
        and "start a new process" in out
        and out.endswith("6.0\n")
    )


@pytest.mark.long
def test_fake_kernels_make_the_operator_traceable(project):
    out = run(
        project,
        """
        from torch._subclasses.fake_tensor import FakeTensorMode
        kernels.register_fakes({"add": lambda a, b, impl: torch.empty_like(a)})
        kernels.load("cpu")
        kernels.register_fakes({"add": None})  # a second time changes nothing
        with FakeTensorMode():
            a = torch.empty(7, 5, dtype=torch.float16)
            out = torch.ops.fusescope.add(a, a, "cpu")
        print(type(out).__name__, tuple(out.shape), out.dtype)
        b = torch.ones(7)
        for impl in ("cpu", "auto"):
            twice = lambda x, impl=impl: kernels.call("add", x, x, impl=impl) * 2
            compiled = torch.compile(twice, backend="eager", fullgraph=True)
            print(compiled(b).sum().item())
        """,
    )
    assert out == "FakeTensor (7, 5) torch.float16\n28.0\n28.0\n"


@pytest.mark.gpu
def test_the_cuda_library_is_built_for_this_gpu_and_runs(project):
    out = run(
        project,
        """
        from fusescope.core.sources import families
        a, b = torch.randn(1001, device="cuda"), torch.randn(1001, device="cuda")
        names = [v.name for v in families()["add"].variants if v.device == "cuda"]
        for impl in (*names, "auto"):
            assert torch.equal(kernels.call("add", a, b, impl=impl), a + b), impl
        from fusescope.kernels import report
        built = all(report.state()["add"][n]["status"] == "built" for n in names)
        print(kernels.choose("add", "cuda") == names[-1], built)
        """,
    )
    assert out == "True True\n"
