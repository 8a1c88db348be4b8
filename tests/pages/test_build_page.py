"""The Build page: counts are of what pressing Build would make, a card for each family, its button and the
compiler's figures."""

import folders
import pytest
import synthetic
from drawn_page import calm, said, tables

from fusescope.core.records import Progress
from fusescope.core.sources import families as sources
from fusescope.kernels import inspect, report
from fusescope.kernels.figures import KernelResources
from pages._ui.build import families, page, source


def card(at, name: str) -> str:
    return next(e.proto.body for e in at.get("html") if f"<b>{name}</b>" in e.proto.body)


@pytest.fixture
def machine(monkeypatch):
    """Two families: CPU kernels built, one CUDA kernel built and one out of date for each architecture."""

    def state(archs=None):
        made = {"status": "built", "error": None, "archs": {"cpu": "built"}}
        later = {"status": "stale", "error": None, "archs": dict.fromkeys(archs, "stale")}
        good = {"status": "built", "error": None, "archs": dict.fromkeys(archs, "built")}
        return {
            "add": {"cpu": made, "v1_one_element": good, "v2_vectorised": later},
            "gat": {"cpu": made, "v1_warp_node": good},
        }

    def assemble(chain, archs, *rest):
        what = KernelResources("(anonymous namespace)::k<int>(int)", 40, 0, 8, 0, 1)
        built = report.VariantBuild(
            "add", "v1_one_element", "cuda", "sm_90a", "built", 1, None, "", "", (what,)
        )
        return report.BuildReport(True, 1, True, {}, archs, (built,)) if archs else None

    monkeypatch.setattr(families.report, "state", state)
    monkeypatch.setattr(families.report, "assemble", assemble)
    monkeypatch.setattr(families, "seconds_missing", lambda device, archs: 30.0)
    monkeypatch.setattr(families, "default_archs", lambda: ())
    families.states.clear()
    families.built.clear()
    yield
    families.states.clear()
    families.built.clear()


def test_without_an_architecture_only_cpu_kernels_count(draw, machine):
    at = draw("build")
    assert "For CPU: all 2 kernels and bindings are built; nothing to do." in said(at.caption)
    assert "v1_one_element" not in card(at, "add") and "choose an architecture" in card(at, "add")
    assert not [b for b in at.button if b.label == "Build this family"]


def test_counts_and_cards_follow_the_chosen_architectures(draw, machine, monkeypatch):
    at = draw("build", archs="sm_90a")
    assert "For CPU and sm_90a: 4 of 5 kernels and bindings built, 1 out of date. About 30 s" in said(
        at.caption
    )
    assert "40 registers, <b>" in card(at, "add") and "out of date" in card(at, "add")
    assert "out of date" not in card(at, "gat")
    asked = []
    monkeypatch.setattr(page.submit, "submit", lambda kind, spec: asked.append((kind, spec)) or "none")
    button = next(b for b in at.button if b.label == "Build this family")
    assert button.key == "build/family/add"
    button.click()
    calm(at.run())
    assert asked == [("build", {"archs": ["sm_90a"], "clean": False, "families": ["add"]})]


def test_a_card_has_the_familys_figures_and_those_of_each_function_on_a_click(draw, machine):
    at = draw("build", archs="sm_90a")
    assert "up to 40 registers, no static shared, 8 B spilled" in card(
        at, "add"
    ) and "compiled in 1.0 s" in card(at, "add")
    assert "registers" not in card(at, "gat"), "no CUDA kernel of it is built"
    assert not any(tables(at))
    at.session_state["build/figures/add"] = True
    (rows,) = filter(None, tables(calm(at.run())))
    assert [(r["kernel"], r["function"], r["spills (B)"]) for r in rows] == [
        ("v1_one_element", "k<int>", "8")
    ]


def test_functions_have_names():
    assert families.function("void (anonymous namespace)::rows<float, 4>(Args)") == "rows<float, 4>"


@pytest.mark.parametrize("archs", [(), ("sm_90a",), ("sm_80", "sm_90a")])
def test_the_state_is_of_these_architectures(archs):
    for family, kernels in report.state(archs).items():
        for v in sources()[family].variants:
            built_for = set(kernels[v.name]["archs"]) - {"cpu"}
            assert built_for <= set(archs) and (v.device == "cpu" or not archs or built_for), v.name


@pytest.mark.parametrize("status, word", [("running", "last line"), ("done", "nothing to do")])
def test_the_compilers_output_is_shown_while_they_run(draw, machine, profiles, monkeypatch, status, word):
    doing = Progress(3, 9, "nothing to do" if status == "done" else "compiling add/v2", None, 0.0)
    run = synthetic.run("20261120-090000-build-b00001", kind="build", status=status, progress=doing)
    lines = [f"line {n}" for n in range(40)]
    folders.write(profiles, run, [], samples=False, log="\n".join([*lines, "last line"]))
    if status == "running":  # no worker runs here: what is on disk would be told to have ended
        monkeypatch.setattr(page, "_live", lambda: run.id)
        monkeypatch.setattr(page.run_data, "read", lambda run_id: run)
    at = draw("build")
    if status == "done":
        at.session_state["build/run"] = run.id
        calm(at.run())
        assert "nothing to do" in said(at.markdown) and "in " in said(at.markdown)
    else:
        shown = next(c.value for c in at.code if "last line" in c.value)
        assert "line 39" in shown and "line 3\n" not in shown
        assert all(b.disabled for b in at.button if b.label in ("Build", "Build this family"))


def test_a_long_listing_is_cut_at_a_line_and_says_so(draw, monkeypatch):
    """The whole would keep a browser busy for most of a second; the download has it."""
    text = inspect.source("attention", "v1_rowwise")
    monkeypatch.setattr(source, "_MOST", 500)
    at = draw("build", of="attention", kernel="v1_rowwise", listing="Source")
    shown = at.code[-1].value
    assert 300 < len(shown) <= 500 and text.startswith(f"{shown}\n")
    lines = len(shown.splitlines()), len(text.splitlines())
    assert f"The first {lines[0]:,} of {lines[1]:,} lines" in " ".join(c.value for c in at.caption)


def test_a_listing_that_fits_is_shown_whole(draw):
    at = draw("build", of="add", kernel="v1_one_element", listing="Source")
    assert at.code[-1].value.strip() == inspect.source("add", "v1_one_element").strip()
    assert not [c.value for c in at.caption if "the download has all" in c.value]
