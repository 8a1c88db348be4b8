"""Generated modules: readable, complete, equal to the unfused layer, and programs of their own."""

import ast
import os
import random
import subprocess
import sys
import threading

import pytest
import torch

from fusescope.core.paths import ROOT
from fusescope.measure.checking import check
from fusescope.search import encoding
from fusescope.search.measuring import compile_worker, inputs, segments
from fusescope.search.scheme import codegen, templates, unfused
from fusescope.search.scheme.layer import OPERATORS, flows
from fusescope.search.scheme.setting import Setting, of_record, of_spec

pytestmark = pytest.mark.slow

TINY = {"batch": 2, "seq": 16, "heads": 2, "head_dim": 32, "dtype": "float32", "compiler": "none"}
MASKS = ("full", "causal", "padding:lengths=16+5", "document:lengths=10+6", "random:density=0.05")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _codes(count: int) -> list[str]:
    drawn = [str(random.Random(7).randrange(1 << 16))]
    rng = random.Random(11)
    drawn += [encoding.bits(rng.randrange(1 << 16)) for _ in range(count)]
    return [*drawn, "21845", "32767", "65535", encoding.encode(True, {1, 7, 8, 10, 12, 13})]


@pytest.mark.parametrize("mask", MASKS)
def test_every_scheme_equals_the_unfused_layer(mask):
    setting = Setting(**TINY, mask=mask)
    with torch.no_grad():
        values = inputs.make(setting, 1)
        whole = unfused.run(
            {n: v.double() if torch.is_tensor(v) and v.is_floating_point() else v for n, v in values.items()}
        )["out"]
        ref = inputs.reference(values)["out"]
        assert torch.allclose(ref, whole, rtol=1e-12, atol=1e-12), "the reference by pieces is the whole"
        shared = segments.Segments(setting, values)
        for code in _codes(12):
            layer = segments.scheme(code, setting, shared)
            allowed = inputs.tolerance(setting, range(15), ref)
            assert check.compare(layer(**inputs.arguments(values)), ref, allowed).reason is None, code


@pytest.mark.parametrize("mask", ["full", "random:density=0.05"])
def test_every_segment_of_every_scheme(mask):
    """All 120 runs of operators and the attention, each against its own operators in float64."""
    setting = Setting(**TINY, mask=mask)
    with torch.no_grad():
        shared = segments.Segments(setting, inputs.make(setting, 0))
        for first in range(15):
            for last in range(first, 15):
                assert shared.wrong(codegen.segment(range(first, last + 1), False, setting)) is None, (
                    first,
                    last,
                )
        assert shared.wrong(codegen.segment(encoding.ATTENTION, True, setting)) is None


def test_a_wrong_segment_is_found(monkeypatch):
    setting = Setting(**TINY)
    right = dict(codegen._TEXT)
    for number, line in (
        (9, "attention_sum = attention_product + x"),
        (5, "probabilities = torch.softmax(masked_scores, -2)"),
    ):
        monkeypatch.setattr(codegen, "_TEXT", right | {number: (line,)})
        with torch.no_grad():
            shared = segments.Segments(setting, inputs.make(setting, 0))
            assert "out of tolerance" in shared.wrong(
                codegen.segment(range(number, number + 1), False, setting)
            )


def test_dtypes_and_odd_sizes():
    for dtype in ("float16", "bfloat16"):
        setting = Setting(
            batch=1, seq=7, heads=3, head_dim=40, ffn=70, dtype=dtype, compiler="none", mask="causal"
        )
        with torch.no_grad():
            values = inputs.make(setting, 0)
            ref = inputs.reference(values)["out"]
            for code in ("21845", "49151"):
                layer = segments.scheme(code, setting, segments.Segments(setting, values))
                out = layer(**inputs.arguments(values))
                assert out.dtype == getattr(torch, dtype)
                assert check.compare(out, ref, inputs.tolerance(setting, range(15), ref)).reason is None


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["qkv_bias", "attention_bias", "ffn1_bias", "ffn2_bias", "norm1_bias"])
def test_the_tolerance_sees_a_forgotten_bias(dtype, name):
    setting = Setting(**TINY | {"dtype": dtype})
    with torch.no_grad():
        values = inputs.make(setting, 0)
        ref = inputs.reference(values)["out"]
        allowed = inputs.tolerance(setting, range(15), ref)
        assert check.compare(unfused.run(values)["out"], ref, allowed).reason is None
        without = values | {name: torch.zeros_like(values[name])}
        assert check.compare(unfused.run(without)["out"], ref, allowed).reason is not None


def test_the_module_names_everything():
    setting = Setting(batch=1, seq=128, mask="bigbird", dtype="float16", device="cuda:0")
    for code in _codes(6):
        source, plan = codegen.generate(code, setting), codegen.plan(code, setting)
        tree = ast.parse(source)
        functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
        assert list(functions) == [*(s.function for s in plan), "layer"]
        assert [i for s in plan for i in s.operators] == list(range(15))
        assert all(f"{o.number} {o.name}" in source for o in OPERATORS) and encoding.canonical(
            code
        ) in ast.get_docstring(tree)
        for s in plan:
            decorated = [d.id for d in functions[s.function].decorator_list]
            assert decorated == (["compiled"] if s.how == "inductor" else [])
            assert codegen.segment_text(s, setting) in source and codegen.segment_text(
                s, setting
            ) in codegen.segment_module(s, setting)
        assert [a.arg for a in functions["layer"].args.args] == [
            *(n for n in flows()[0] if n != "mask"),
            "mask",
            "empty_rows",
            "plan",
        ]
        assert max(map(len, source.splitlines())) <= 130
        assert "/" not in source.replace("**-0.5", "").split('"""')[2], "no path of this machine"


def test_equivalent_codes_are_one_module():
    setting = Setting(batch=1, seq=128)
    for code in _codes(6):
        assert codegen.generate(code, setting) == codegen.generate(encoding.complement(code), setting)
        assert codegen.generate(code, setting) == codegen.generate(encoding.canonical(code), setting)


def test_what_a_segment_becomes():
    setting = Setting(batch=1, seq=128)
    how = {s.span: s.how for s in codegen.plan(encoding.encode(True, {1, 7, 8, 10, 12, 13}), setting)}
    assert how == {
        "0-1": "linear",
        "2-7": "attention",
        "8": "torch",
        "9-10": "bias_residual_layernorm",
        "11-12": "linear",
        "13": "torch",
        "14": "bias_residual_layernorm",
    }
    assert {s.how for s in codegen.plan(32767, setting)} == {"inductor"}
    assert codegen.segment(encoding.ATTENTION, False, setting).how == "inductor", (
        "bit 0 decides on the attention"
    )
    assert {s.how for s in codegen.plan(32767, Setting(batch=1, seq=128, compiler="none"))} == {"torch"}
    for t in templates.TEMPLATES:
        taken, given = flows(t.operators)
        body = ast.parse("\n".join(line for _, line in t.lines))
        stored = {n.id for n in ast.walk(body) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        used = {
            n.id for n in ast.walk(body) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
        } - stored
        assert [i for done, _ in t.lines for i in done] == list(t.operators) and set(given) <= stored
        assert (set(taken) - {"mask"}) | set(t.extra) <= used | {"mask"}, t.name


def test_generating_needs_no_torch():
    code = (
        "import sys\nfrom fusescope.cli import main\n"
        "assert main('generate 16022 --mask bigbird --device cpu'.split()) == 0\n"
        "from fusescope.search import sessions\n"
        "from fusescope.search.learning import additive, boosted, cost_model, evolve, explain, explore\n"
        "from fusescope.search.learning import features, guided, pairs\n"
        "from fusescope.jobs.kinds import traverse, search\n"
        "print(sorted({'torch', 'transformers', 'pandas', 'xgboost', 'duckdb'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.long
def test_a_segment_is_compiled_in_a_process_of_its_own():
    """Once really, the smallest: what it leaves in torch's cache is what a job finds there."""
    from fusescope.search.measuring import compile_ahead

    setting = Setting(**TINY | {"compiler": "inductor"})
    wanted = codegen.segment(range(1, 3), False, setting)
    assert wanted.how == "inductor" and list(compile_ahead.compile_all(setting, [wanted], 1)) == [
        (wanted, None)
    ]


def test_a_module_is_a_program(tmp_path):
    setting, file = Setting(**TINY), tmp_path / "scheme.py"
    file.write_text(codegen.generate("1011111010010110", setting))
    words = [sys.executable, str(file), "--seconds", "0.1"]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=os.environ | _path()
    )
    assert done.returncode == 0, done.stderr
    assert (
        "correct: largest error" in done.stdout
        and "speed-up over unfused" in done.stdout
        and "this scheme: " in done.stdout
    )
    wrong = file.read_text().replace(
        "attention_sum = linear(merged, attention_weight, attention_bias, residual=x)",
        "attention_sum = linear(merged, attention_weight, None, residual=x)",
    )
    file.write_text(wrong)
    done = subprocess.run(
        [*words, "--device", "cpu"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | _path(),
    )
    assert done.returncode == 1 and "wrong: " in done.stdout and "this scheme: " not in done.stdout, (
        "no time of a wrong result"
    )


def test_a_module_on_a_device_that_is_not_there(monkeypatch, capsys):
    from fusescope.search import runtime

    monkeypatch.setattr(sys, "argv", ["scheme.py", "--device", "tpu"])
    with pytest.raises(SystemExit) as stop:
        runtime.main(None, "0101010101010101", **Setting(**TINY).spec())
    assert stop.value.code == 2 and "cpu or cuda:N, not 'tpu'" in capsys.readouterr().err


def _path() -> dict:
    """As `pip install -e .` makes fusescope importable from anywhere."""
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "backend"), os.environ.get("PYTHONPATH")])),
        "OMP_NUM_THREADS": "1",
    }


def test_a_compiler_that_dies_is_said(monkeypatch):
    from fusescope.search.measuring import compile_ahead

    setting = Setting(batch=1, seq=128)
    wanted = [codegen.segment(range(a, a + 2), False, setting) for a in (2, 4, 6)]
    monkeypatch.setattr(compile_ahead.sys, "executable", "/bin/false")
    got = dict((s.span, why) for s, why in compile_ahead.compile_all(setting, wanted, 2))
    assert got == dict.fromkeys(["2-3", "4-5", "6-7"], "the process that compiled it ended with exit code 1")
    assert list(compile_ahead.compile_all(setting, [], 2)) == []


def test_a_segment_is_compiled_by_one_process_at_a_time(tmp_path, monkeypatch):
    """Sweeps of one setting on several GPUs would each compile everything."""
    monkeypatch.setenv("FUSESCOPE_RUNTIME", str(tmp_path))
    began, order = threading.Event(), []

    def other():
        began.set()
        with compile_worker.alone("setting 2-4"):
            order.append("other")

    with compile_worker.alone("setting 2-4"):
        thread = threading.Thread(target=other)
        thread.start()
        began.wait()
        with compile_worker.alone("setting 2-5"):
            thread.join(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "other"]


def test_how_many_processes(monkeypatch):
    from fusescope.search.measuring import compile_ahead

    setting = Setting(batch=16, seq=2048, device="cuda:0")
    monkeypatch.setattr(compile_ahead.os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.delenv("FUSESCOPE_JOBS", raising=False)
    assert (
        compile_ahead.processes(setting, 91, 139 << 30) == 13
        and compile_ahead.processes(setting, 91, 16 << 30) == 1
    )
    assert (
        compile_ahead.processes(Setting(batch=1, seq=128), 91) == 14
        and compile_ahead.processes(setting, 5, 139 << 30) == 2
    )
    monkeypatch.setenv("FUSESCOPE_JOBS", "3")
    assert compile_ahead.processes(Setting(batch=1, seq=128), 91) == 3
    monkeypatch.setenv("FUSESCOPE_JOBS", "0")
    with pytest.raises(ValueError, match="FUSESCOPE_JOBS is a number of compilers from 1, not '0'"):
        compile_ahead.processes(setting, 91)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"batch": 0}, "batch must be an integer from 1 to 65,536, not 0"),
        ({"dtype": "int8"}, "dtype must be float32, float16 or bfloat16, not 'int8'"),
        ({"device": "tpu"}, "cpu or cuda:N, not 'tpu'"),
        ({"compiler": "gcc"}, "compiler must be inductor or none, not 'gcc'"),
        ({"mask": "padding:lengths=3+4+5"}, "written for 3 sequences, the batch is 2"),
        ({"mask": "nothing"}, "unknown mask 'nothing'"),
        ({"mask": 3}, "mask must be a mask such as causal"),
    ],
)
def test_what_is_no_setting(change, says):
    with pytest.raises((ValueError, TypeError), match=says):
        Setting(**TINY | change)


def test_settings_come_back_from_what_is_stored():
    from fusescope.core.records import Record

    setting = Setting(**TINY, mask="bigbird")
    assert (
        of_spec(setting.spec() | {"limit": 3}) == setting
        and setting.ffn == 256
        and "window=32" in setting.mask
    )
    record = Record("layer", "unfused", setting.case(), "float32", "cpu", "error", "x")
    assert of_record(record) == setting
    with pytest.raises(ValueError, match="a layer needs seq"):
        of_spec({"batch": 1})
    with pytest.raises(ValueError, match="not 'gemm'"):
        of_record(Record("gemm", "v1", {}, "float32", "cpu", "error", "x"))
    assert Setting(1, 128, device="cuda").device == "cuda:0" and str(Setting(1, 128)).startswith(
        "batch 1, seq 128, 12 heads of 64"
    )


def test_processes_that_compile_take_turns_and_what_became_of_each_is_said(monkeypatch):
    """Processes that only answer, end or hang in the place of those that compile."""
    from fusescope.search.measuring import compile_ahead

    setting = Setting(**TINY | {"compiler": "inductor"})
    wanted = [codegen.segment(range(first, first + 2), False, setting) for first in (1, 5, 9, 12)]
    start, code = subprocess.Popen, "import sys\nfor line in sys.stdin: print('done', flush=True)"

    def stands_in(words, **more):
        return start([sys.executable, "-c", code], **more)

    monkeypatch.setattr(compile_ahead.subprocess, "Popen", stands_in)
    assert dict(compile_ahead.compile_all(setting, wanted, 2)) == dict.fromkeys(wanted)
    code = "raise SystemExit(3)"
    (_, said), *_ = compile_ahead.compile_all(setting, wanted[:1], 1)
    assert said.endswith("ended with exit code 3")
    code = "import time; time.sleep(60)"
    monkeypatch.setitem(compile_ahead._DEADLINE_S, "cpu", 0.2)
    (_, said), *_ = compile_ahead.compile_all(setting, wanted[:1], 1)
    assert said.endswith("took longer than 0.2 s and was stopped")
