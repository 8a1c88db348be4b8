"""Eight questions that a new user comes with, by what is on the screen alone: from Home, no address with
parameters. Each answer is compared with what the recorded runs hold, and the actions (a click or a filled
field) are counted."""

import re
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect
from settling import choose, settled

sys.path.append(str(Path(__file__).resolve().parents[1] / "profiling"))

from made_up import kernel, launch, trace, x

from fusescope import masks, models
from fusescope.analysis import roofline
from fusescope.charts import numbers
from fusescope.store import folder, profile

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]
RECORDED = Path(__file__).resolve().parents[2] / "profiles" / "recorded"
H200 = "NVIDIA H200"
LONG = 180_000  # milliseconds that a job may take on a slow machine
MOST = 8  # actions


class Visitor:
    """Somebody in front of a page. ``actions``: clicks and filled fields so far."""

    def __init__(self, page, address: str):
        self.page, self.actions = page, 0
        page.goto(f"{address}/")
        self.wait("What is fastest for")

    def click(self, role: str, name, exact: bool = False) -> None:
        self._act(self.page.get_by_role(role, name=name, exact=exact).first)

    def pick(self, label: str, value) -> None:
        choose(self.page, label, value)
        self.actions += 1

    def fill(self, label: str, value) -> None:
        settled(self.page)
        box = self.page.get_by_role("textbox", name=label, exact=True).first
        box.fill(str(value))
        box.press("Enter")
        self.actions += 1
        settled(self.page)

    def tick(self, *titles: str) -> None:
        """Select runs of the list: its rows are painted; the table for screen readers has their text."""
        table = self.page.get_by_test_id("stDataFrame")
        for count, title in enumerate(titles, 1):
            settled(self.page)
            row = table.locator("table tr").filter(has_text=title).first
            line = int(row.get_attribute("aria-rowindex"))  # from 1, the header's
            corner = table.locator("canvas").first.bounding_box()
            self.page.mouse.click(corner["x"] + 16, corner["y"] + 36 + 32 * (line - 2) + 16)
            self.actions += 1
            self.wait(re.compile(f"^{count} selected"))

    def wait(self, text, **how):
        found = self.page.get_by_text(text).first
        found.wait_for(**how)
        return found

    def sees(self, text) -> str:
        """The paragraph of a text that is on the screen without a scroll."""
        found = self.wait(text)
        settled(self.page)
        expect(found).to_be_in_viewport()
        return found.evaluate("e => (e.closest('p') || e).innerText")

    def _act(self, place) -> None:
        settled(self.page)
        place.click()
        self.actions += 1
        settled(self.page)


@pytest.fixture
def visitor(page):
    page.set_viewport_size({"width": 1440, "height": 900})
    found = []

    def make(server):
        found.append(Visitor(page, server.address))
        return found[0]

    yield make
    assert all(0 < v.actions <= MOST for v in found), [v.actions for v in found]


def runs(kind: str) -> list:
    """(run, its folder) of the recorded runs of a kind, newest first."""
    found = [(folder.read(path), path) for path in RECORDED.glob(f"*-{kind}-*")]
    return sorted(found, key=lambda pair: pair[0].created or 0, reverse=True)


def measured(kind: str, op: str, dtype: str = "float16", **case) -> dict[str, float]:
    """ms by implementation, on the H200, of the newest recorded run of a case; only keys given count."""
    return together(kind, op, [case], dtype)[0]


def together(kind: str, op: str, cases: list[dict], dtype: str = "float16") -> list[dict[str, float]]:
    """The same of several cases, of the newest run that has all of them."""
    for run, path in runs(kind):
        if run.device_name == H200 and run.spec["op"] == op and run.spec["dtype"] == dtype:
            rows = [r for r in folder.records(path) if r.status == "ok"]
            found = [
                {r.impl: r.ms for r in rows if all(r.case.get(k) == v for k, v in case.items())}
                for case in cases
            ]
            if all(found):
                return found
    raise AssertionError("no recorded run of these cases")


def against_sdpa(times: dict[str, float]) -> re.Pattern:
    """ "v3_hopper, 26.1 µs: 2.22× [2.20, 2.24] sdpa (57.9 µs)"; the ratio of medians."""
    best = min(times, key=times.get)
    ratio = numbers.ratio(times["sdpa"] / times[best])
    sdpa = re.escape(numbers.time(times["sdpa"]))
    return re.compile(rf"{best}, {re.escape(numbers.time(times[best]))}: {ratio} \[[^\]]+\] sdpa \({sdpa}\)")


def test_which_attention_for_padded_bert_and_how_much_faster_than_sdpa(recorded_server, visitor):
    v = visitor(recorded_server)
    v.pick("lengths", "unequal (mean 0.6)")
    alone = measured("bench", "attention_varlen", batch=16, seq=512, heads=12, head_dim=64)
    v.sees(against_sdpa(alone))
    v.sees(against_sdpa(measured("model", "model:bert-base", batch=16, seq=512, lengths="uniform")))
    assert v.actions == 1


@pytest.mark.long
def test_is_my_function_right_and_how_fast_against_eager(shared_server, visitor, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "def softmax(x):\n    e = (x - x.amax(-1, keepdim=True)).exp()\n    return e / e.sum(-1, True)\n"
    )
    v = visitor(shared_server)
    v.click("link", "Check my function")
    v.fill("your Python file", mine)
    v.sees(re.compile(r"softmax\(x\) as Softmax"))
    v.click("button", re.compile("^Compare mine with eager"))
    v.wait("No job is running.", timeout=LONG)
    text = v.sees(re.compile(r"mine\.py:softmax is correct \(worst error"))
    name = re.search(r"run=([\w-]+)", v.page.url)[1]
    rows = {r.impl: r for r in folder.records(shared_server.profiles / name)}
    own, eager = rows[f"{mine}:softmax"], rows["eager"]
    assert f"worst error {own.accuracy.max_abs:.2g}" in text and set(rows) == {own.impl, "eager"}
    taken = (numbers.time(r.time_of(own.speedup.of).median) for r in (own, eager))
    assert "{} against {} of eager".format(*taken) in text
    assert v.actions == 3


def step_ms(path: Path) -> float:
    device = profile.summary(path)["devices"][0]
    return (device["last_ns"] - device["first_ns"]) / len(profile.rows(path, "steps")) / 1e6


def test_what_limits_a_profile_and_what_to_do(recorded_server, visitor):
    titles = ("BERT-base, SDPA, fp16 (8, 128)", "BERT-base, SDPA in a CUDA graph, fp16 (8, 128)")
    mine, graph = (next(p for run, p in runs("trace") if run.title == title) for title in titles)
    device = profile.summary(mine)["devices"][0]
    idle = 1 - device["busy_ns"] / (device["last_ns"] - device["first_ns"])
    v = visitor(recorded_server)
    v.click("link", "Profiler")
    v.pick("profile", re.compile(re.escape(titles[0])))
    v.sees("Launch-bound")
    v.sees(re.compile(rf"idle {100 * idle:.1f}\W?% of"))
    of = next(p for run, p in runs("model") if run.title.startswith("BERT-base fp16, full mask, (8, 128)"))
    calls = {r.impl: r.time_of("eager").median for r in folder.records(of)}
    v.sees(
        re.compile(rf"Run it as sdpa-graph · {numbers.ratio(calls['sdpa'] / calls['sdpa-graph'])} as fast")
    )
    there, here = (numbers.time(calls[impl]) for impl in ("sdpa-graph", "sdpa"))
    v.sees(re.compile(rf"A call takes {there} there, {here} here, by a benchmark"))
    v.click("button", "Compare", exact=True)
    v.sees(re.compile(r"May b be compared with a\? Yes: the same work on NVIDIA H200"))
    v.sees(re.compile(rf"A call of b is {numbers.ratio(calls['sdpa'] / calls['sdpa-graph'])} faster"))
    v.sees(re.compile(rf"a step of b is {numbers.ratio(step_ms(mine) / step_ms(graph))} faster"))
    assert v.actions == 3


def test_which_of_two_similar_runs_is_better_and_may_they_be_compared(recorded_server, visitor):
    v = visitor(recorded_server)
    v.click("link", "Runs")
    v.fill("Search", "gpt-2 decode")
    v.page.get_by_test_id("stDataFrame").first.wait_for()
    v.tick("its matrices still", "GPT-2 fp16, decodefused")
    v.click("button", "Compare", exact=True)
    said = v.sees(re.compile("May B be compared with A?"))
    titles = ("GPT-2 fp16, decode", "GPT-2 fp16, decode, its matrices still transposed")
    alike = [(run, path) for run, path in runs("model") if run.title in titles]
    timed = [{(r.case_key, r.impl) for r in folder.records(p) if r.status == "ok"} for _, p in alike]
    assert len(timed) == 2 and ("A? Yes" in said) == bool(timed[0] & timed[1])
    assert v.actions == 5


def test_how_much_bigbird_can_save_at_4096_and_how_much_is_achieved(recorded_server, visitor):
    kept = masks.load("bigbird").bind(4096, 4096).dense().mean()
    case = {"batch": 8, "heads": 12, "seq": 4096, "head_dim": 64}
    v = visitor(recorded_server)
    v.click("link", "Masks")
    v.pick("mask", "bigbird")
    ideal = v.sees(re.compile("skipping the rest allows"))
    full, sparse = together("bench", "attention", [case | {"mask": m} for m in ("full", "bigbird")])
    gain = min(full.values()) / min(sparse.values())
    best = min(sparse, key=sparse.get)
    v.sees(re.compile(rf"Achieved there: {numbers.ratio(gain)}, .* of the lower limit, by {best}"))
    assert f"skipping the rest allows {numbers.ratio(1 / kept)}" in ideal
    assert v.actions == 2


def test_the_dearest_kernel_and_the_idle_share_of_a_foreign_trace(shared_server, visitor, tmp_path):
    events = [x("user_annotation", "ProfilerStep#0", 0, 1000)]
    for n, (name, length) in enumerate((("short_one", 50), ("their_dearest", 300), ("short_one", 50))):
        events += [launch(n + 1, 10 + 300 * n), kernel(n + 1, 20 + 320 * n, length, name)]
    v = visitor(shared_server)
    v.click("link", "Open a trace")
    v.page.set_input_files("input[type=file]", str(trace(tmp_path / "theirs.json", events)))
    v.actions += 1
    expect(v.page.get_by_role("button", name="Import the upload", exact=True)).to_be_enabled()
    v.click("button", "Import the upload", exact=True)
    v.sees(re.compile(r"Longest kernel: their_dearest, 75.0\W?% of the kernel time: 1 call"))
    v.sees(re.compile(rf"The device was idle {100 * (1 - 400 / 690):.3g}\W?% of 690\W?µs"))
    assert v.actions == 3


def test_the_fastest_fusion_scheme_and_its_gain_over_torch_compile(recorded_server, visitor):
    wanted = {"batch": 16, "seq": 2048, "mask": "full"}
    path = next(p for r, p in runs("traverse") if all(r.spec.get(k) == v for k, v in wanted.items()))
    records = [r for r in folder.records(path) if r.status == "ok"]
    schemes = {r.impl: r for r in records if r.op == "layer" and r.impl.isdigit()}
    best = min(schemes.values(), key=lambda r: r.ms)
    compiled = next(r for r in records if r.impl == "compile")
    v = visitor(recorded_server)
    v.click("link", "Fusion")
    said = v.sees(re.compile("Fastest of [0-9,]+ measured schemes"))
    assert f"{len(schemes):,} measured schemes of a layer of BERT base: {numbers.time(best.ms)}" in said
    assert f"{numbers.ratio(compiled.ms / best.ms)} torch.compile," in said
    assert f"{numbers.ratio(best.speedup.median)} unfused" in said
    v.sees(re.compile(r"\d+ kernels, \d+ of them fused"))
    assert best.impl in v.page.url and v.actions == 1


def test_tokens_per_second_of_llama_3_8b_that_nobody_measured(recorded_server, visitor):
    v = visitor(recorded_server)
    v.pick("What is fastest for", "Llama 3 8B")
    v.fill("batch", 1)
    v.fill("context", 4096)
    said = v.sees(re.compile("Whole Llama 3 8B: not recorded"))  # on the H200, the first device offered
    case = models.validate("llama3-8b", {"batch": 1, "seq": 4096, "phase": "decode"})
    cost = models.cost("llama3-8b", case, "float16")
    rate = float(re.search(r"traffic at ([\d.]+) TB/s", said)[1])
    assert 3.3 < rate <= 4.8  # what was measured on the H200, not more than its data sheet's
    bound = roofline.least_ms(cost.flop_effective, cost.bytes, roofline.Ceiling(rate * 1e3, 990.0))
    told = float(re.search(r"At batch 1 at most ([\d.,]+) tokens/s", said)[1].replace(",", ""))
    assert told == pytest.approx(1e3 / bound, rel=0.01)
    assert v.actions == 3
