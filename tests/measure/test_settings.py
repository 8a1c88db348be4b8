"""Settings of the whole process that an implementation changes: put back before others run, and said."""

import os
import subprocess
import sys

import pytest
import torch

from fusescope.core.machine import conditions
from fusescope.measure.checking import settings


def sums():
    """Whether 16-bit products may be summed in fewer bits."""
    matmul = torch.backends.cuda.matmul
    return matmul.allow_fp16_reduced_precision_reduction, matmul.allow_bf16_reduced_precision_reduction


CHANGES = {
    "threads of torch": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "TF32 in cuBLAS": lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
    "TF32 in cuDNN": lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
    "float32 matmul precision": lambda: torch.set_float32_matmul_precision("medium"),
    "precision of float32": lambda: setattr(torch.backends, "fp32_precision", "tf32"),
    "deterministic algorithms": lambda: torch.use_deterministic_algorithms(True),
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "default device": lambda: torch.set_default_device("meta"),
    "gradients": lambda: torch.set_grad_enabled(not torch.is_grad_enabled()),
    "autocast on cpu": lambda: torch.set_autocast_enabled("cpu", True),
    "SDPA's flash backend": lambda: torch.backends.cuda.enable_flash_sdp(False),
    "SDPA's math backend": lambda: torch.backends.cuda.enable_math_sdp(False),
    "cuDNN's benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "random seed": lambda: torch.manual_seed(1 + torch.initial_seed() % 1000),
    "environment variables": lambda: os.environ.update(CUBLAS_WORKSPACE_CONFIG=":4096:8"),
    "working directory": lambda: os.chdir("/"),
    "tracing of Python": lambda: sys.settrace(lambda frame, event, arg: None),
    "profiling of Python": lambda: sys.setprofile(lambda frame, event, arg: None),
}


@pytest.fixture
def untouched():
    """The settings as they are; whatever a test does, they are so again after it."""
    with settings.kept({}):
        yield [setting.get() for setting in settings.SETTINGS]


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed_is_put_back_and_named(untouched, name):
    changed = {}
    with settings.kept(changed):
        CHANGES[name]()
    assert [setting.get() for setting in settings.SETTINGS] == untouched
    assert name in changed and " → " in changed[name]
    assert f"{name} {changed[name]}" in settings.sentence(changed)


def test_all_at_once_and_after_an_exception(untouched):
    changed = {}
    with pytest.raises(ZeroDivisionError), settings.kept(changed):
        for change in CHANGES.values():
            change()
        raise ZeroDivisionError
    assert [setting.get() for setting in settings.SETTINGS] == untouched
    assert changed.keys() >= CHANGES.keys()


def test_what_changes_nothing_has_no_sentence(untouched):
    changed = {}
    with settings.kept(changed):
        torch.rand(3)  # drawing numbers is no other seed
    assert changed == {} and settings.sentence(changed) is None


@pytest.mark.parametrize("function", ["sets_threads", "sets_precision_when_imported"])
def test_one_that_changes_settings_does_not_reach_the_others(untouched, quick, wrong, function):
    name = (
        wrong(function)
        if function != "sets_precision_when_imported"
        else wrong("right").replace("wrong_add.py", "sets_precision.py")
    )
    reporter = quick([name, "eager"])
    assert [setting.get() for setting in settings.SETTINGS] == untouched
    changer, eager = sorted(reporter.records, key=lambda r: r.impl == "eager")
    assert (changer.status, eager.status) == ("ok", "ok")
    assert "put back after each of its turns" in changer.conditions.settings
    assert "changed settings" in conditions.marks(changer) and eager.conditions.settings is None
    assert any(changer.conditions.settings in text for text in reporter.lines)


def test_products_are_summed_in_fp32_while_anything_is_timed(quick, monkeypatch):
    seen = []
    monkeypatch.setattr(torch, "add", lambda a, b: seen.append(sums()) or a + b)
    quick(["eager"])
    assert seen and set(seen) == {(False, False)}


@pytest.mark.gpu
def test_sdpa_chooses_as_it_would_alone():
    """Its order of backends is torch's own decision at the first choice, and stays."""
    q = torch.randn(1, 4, 64, 64, dtype=torch.float16, device="cuda")
    changed, chosen = {}, []
    for _ in range(3):
        with settings.kept(changed):
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
            chosen.append(torch._fused_sdp_choice(q, q, q))
    alone = "import torch; q = torch.randn(1, 4, 64, 64, dtype=torch.float16, device='cuda')\n"
    alone += "print([torch._fused_sdp_choice(q, q, q) for _ in range(3)])"
    said = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True, check=True).stdout
    assert changed == {} and str(chosen) == said.strip()
