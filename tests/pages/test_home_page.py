"""Home answers "What is fastest?" from the recorded runs, names what differs, and bounds what was not run."""

import os
import re

import folders
import pytest
import synthetic
from drawn_page import calm, query, said, widget

from fusescope import ops
from fusescope.analysis import roofline
from fusescope.core.machine import environment
from fusescope.store import files
from pages._ui.app import run_data
from pages._ui.home import fastest
from pages._ui.limits import least, rates

H200 = "NVIDIA H200"
H100 = "NVIDIA H100 80GB HBM3"


def shown(at) -> str:
    return said([*at.markdown, *at.caption, *at.warning])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "says"),
    [
        (
            {"lengths": "padded"},
            ("v3_hopper, 26.1 µs: 2.22× [2.20, 2.24] sdpa (57.9 µs)", "fused, 1.96 ms: 2.05× ["),
        ),
        (
            {"about": "attention", "mask-full": "bigbird", "seq": "2048"},
            (
                "Attention under bigbird:window=128,global_tokens=64,random_blocks=3,block=64,seed=0: "
                "v5_parts",
            ),
        ),
        ({"on": H100, "about": "vit-base", "batch": "8"}, ("Whole ViT base: fused, 891 µs",)),
        (
            {"about": "attention", "mask-full": "causal", "seq": "3000", "dtype": "bfloat16"},
            ("not recorded", "sequence 2,048 instead of 3,000", "float16 instead of bfloat16"),
        ),
        (
            {"about": "llama3-8b", "phase": "decode", "batch": "1", "seq": "4096"},
            (
                "Whole Llama 3 8B: not recorded.",
                "At these rates it takes at least 3.6",
                "with float16 weights, 2.0",
                "At batch 1 at most 27",
                "tokens/s with float16 weights, 49",
                "Attention alone: v4_cluster, 7.37 µs: 2.06× ",
                "next sdpa_cudnn, 9.20 µs",
            ),
        ),
        (
            {"on": H100, "about": "llama3-8b", "phase": "decode", "batch": "1"},
            (
                "fused-int8, 3.67 ms, 273 tokens/s: 2.51× ",
                "without quantisation fused, 5.98 ms, 167 tokens/s",
            ),
        ),
        (
            {"about": "llama3-8b", "phase": "decode", "batch": "1", "seq": "32768"},
            ("Attention alone: v4_cluster, 35.8 µs: 2.14× ", "next sdpa_cudnn, 37.7 µs"),
        ),
        (
            {"on": H100, "about": "rmsnorm_residual", "rows": "16"},
            (
                "Residual + RMSNorm: v2_registers, 1.58 µs: 14.4× [14.3, 14.5] eager (22.7 µs); next "
                "compile, 2.14 µs",
            ),
        ),
        (
            {"on": H100, "about": "attention_decode", "kv_heads": "8"},
            ("Attention, decoding: not recorded.", "Nearest recorded (context 8,192 instead of 4,096)"),
        ),
        (
            {"about": "sddmm", "mask": "causal"},
            ("Sampled product (SDDMM): not recorded.", "instead of causal"),
        ),
        (
            {"lengths": "padded", "mask-full": "bigbird"},
            ("Attention alone under bigbird:window=64", ": not recorded.", "mask none instead of bigbird"),
        ),
        (
            {"lengths": "padded", "mask-full": "sliding_window:left=64,right=9"},
            ("Attention alone under sliding_window:left=64,right=9: not recorded.",),
        ),
    ],
    ids=[
        "padded",
        "mask",
        "image",
        "nearest",
        "bound",
        "rates",
        "decoding",
        "operator",
        "derived",
        "operator mask",
        "packed mask",
        "packed window",
    ],
)
def test_what_is_fastest(draw, recorded, query, says):
    text = shown(draw("app", **{"on": H200} | query))
    for sentence in says:
        assert sentence in text


@pytest.mark.slow
@pytest.mark.sample(4, "rope_cache")
@pytest.mark.parametrize("op", ops.names())
def test_every_operator_is_answered(draw, recorded, op):
    at = draw("app", about=op, on=H200)
    title = ops.load(op).TITLE
    assert not at.error and not at.warning and re.search(rf"{re.escape(title)}( under [^ ]+)?: ", shown(at))


def test_a_bad_value_is_said_and_the_default_used(draw):
    at = draw("app", batch="-5")
    assert "Ignored batch=-5 from the URL" in shown(at)
    assert at.text_input(key="app/batch/typed").value == "16"


@pytest.mark.slow
@pytest.mark.parametrize(("box", "number"), [("batch", -3), ("seq", 2_000_000)])
def test_a_number_out_of_bounds_is_refused_where_it_is_typed(draw, box, number):
    at = draw("app")
    at.text_input(key=f"app/{box}/typed").set_value(str(number)).run()
    assert f"not {number}" in at.error[0].value.replace("\\", "")
    assert not any("not recorded" in m.value for m in at.markdown), "an answer to a question that was refused"
    assert box not in query(at)
    at.text_input(key=f"app/{box}/typed").set_value("7")
    assert query(calm(at.run()))[box] == "7" and not at.error


def test_its_link_to_one_case_of_several_fills_the_form(draw, recorded):
    """What is on show is then what the form says."""
    at = draw("models", model="gpt2", run="20261126-112416-model-3c8687", case="batch=8, seq=512")
    assert not at.info and not at.warning, [e.value for e in (*at.info, *at.warning)]
    address = query(at)
    assert (address["batch"], address["seq"], address["phase"]) == ("8", "512", "decode")


@pytest.mark.slow
@pytest.mark.parametrize("mask, says", [("full", "At these rates it takes"), ("bigbird", "No bound")])
def test_the_longest_sequence_is_answered(draw, recorded, mask, says):
    """Counting its 2^40 elements one by one kept the page busy for hours."""
    at = draw("app", on=H200, about="attention", seq=str(1 << 20), **{"mask-full": mask})
    assert not at.exception and says in shown(at)


@pytest.mark.slow
def test_decoding_in_a_dtype_that_nobody_measured(draw, recorded):
    """The bound of the model follows the nearest case of its attention."""
    at = draw("app", about="llama3-8b", phase="decode", batch="1", seq="4096", dtype="bfloat16", on=H200)
    assert not at.exception and "At batch 1 at most" in shown(at)
    assert "float16 instead of bfloat16" in shown(at)


def test_a_device_without_attention_shows_the_map_of_another_and_says_so(draw, recorded):
    at = draw("app", on="Intel(R) Xeon(R) Processor")
    said_so = "Attention by mask and shape was not measured on Intel Xeon; the map is of NVIDIA H200."
    assert said_so in said(at.caption)
    assert len(at.get("plotly_chart")) == 1


def test_the_map_is_of_the_device_that_was_asked_for(draw, recorded):
    at = draw("app", on=H100)
    assert "the map is of" not in said(at.caption) and len(at.get("plotly_chart")) == 1


def test_a_comparison_on_the_processor_leaves_the_front_page_as_it_was(draw, profiles):
    """One toy of eager and sdpa on two cores made the front page answer for that processor."""
    here = environment.collect("cpu")["device_name"]
    own = synthetic.run(environment={"device_name": here, "device": "cpu"})
    folders.write(profiles, own, synthetic.point())
    folders.write(profiles / "recorded", synthetic.run("20261120-104200-bench-ffffff"), synthetic.point())
    at = draw("app")
    assert at.selectbox(key="app/on").value == H200
    assert here in at.selectbox(key="app/on").options[0]


@pytest.mark.slow
def test_the_device_follows_to_where_an_operator_was_measured_until_one_is_chosen(draw, recorded):
    """RMSNorm is recorded on an H100 alone: on the H200 that Home begins with it was "not recorded"."""
    at = draw("app")
    assert widget(at.selectbox, "device").value == H200
    calm(widget(at.selectbox, "What is fastest for").set_value("rmsnorm_residual").run())
    assert widget(at.selectbox, "device").value == H100 and "on" not in query(at)
    assert "RMSNorm was not measured on NVIDIA H200: the device is NVIDIA H100 80GB HBM3." in shown(at)
    calm(widget(at.selectbox, "What is fastest for").set_value("bert-base").run())
    assert widget(at.selectbox, "device").value == H200
    calm(widget(at.selectbox, "device").set_value(H100).run())
    calm(widget(at.selectbox, "What is fastest for").set_value("attention").run())
    assert widget(at.selectbox, "device").value == H100 == query(at)["on"]


def test_a_mask_whose_file_is_gone_has_no_share_of_the_rates(draw, profiles):
    """The nearest record may be of a mask that this machine cannot count any more."""
    case = synthetic.case(512) | {"mask": "file:/gone/mask.npy"}
    rows = [synthetic.ok("eager", 2.0, 2.0, case), synthetic.ok("v1_rowwise", 1.0, 1.0, case)]
    run = synthetic.run(spec=synthetic.SPEC | {"cases": [case]})
    folders.write(profiles, run, rows)
    at = draw("app", about="attention", on=run.device_name)
    assert not at.exception and not at.error and "Nearest recorded" in shown(at)
    assert "of the speed that the rates" not in shown(at)


@pytest.mark.slow
def test_all_implementations_are_compared_with_what_the_answer_is_over(draw, recorded):
    """ "2.22× sdpa" was followed by a link to a page over eager."""
    at = draw("app", lengths="padded", on=H200)
    links = [e.proto.query_string for e in at.get("page_link") if "All implementations" in e.proto.label]
    assert len(links) == 2 and all("over=sdpa" in link for link in links)


def test_more_than_the_rates_of_copies_is_explained(monkeypatch):
    """ "110 % of the speed that the rates of the device allow" stood alone beside a decoding kernel."""
    at = rates.Rates(roofline.Ceiling(3000.0, 700.0), "measured", "measured")
    monkeypatch.setattr(least.rates, "of", lambda *of: at)
    monkeypatch.setattr(least.cached_chart, "once", lambda *of: (1.0, 9e9, 1.0))
    fast, slow = (synthetic.ok("v4", ms, 1.0, synthetic.case(512)) for ms in (2.0, 4.0))
    text = fastest._share([fast], H200)
    assert text.startswith("; 150 % of the speed") and "only reads" in text
    assert "only reads" not in fastest._share([slow], H200)


def test_the_bandwidth_is_that_of_any_dtype(draw, profiles):
    """Of bfloat16, whose arithmetic nobody measured, the bound took the data sheet's bandwidth: 261 µs beside
    295 µs in float16, of the same bytes."""
    ceilings = {"copy_gbps": 4000.0, "matrix_tflops": {"float16": 700.0}}
    run = synthetic.run(environment={"device_name": H200, "ceilings": ceilings})
    folders.write(profiles, run, synthetic.point())
    half, other = (rates.of(H200, dtype) for dtype in ("float16", "bfloat16"))
    assert half == rates.Rates(roofline.Ceiling(4000.0, 700.0), "measured", "measured")
    assert other == rates.Rates(roofline.Ceiling(4000.0, 989.5), "measured", "data sheet")
    text = shown(draw("app", about="qwen3-0.6b", phase="decode", batch="1", dtype="bfloat16", on=H200))
    assert "at 4.00 TB/s (measured), 1.31 GFLOP at 990 TFLOP/s (data sheet)." in text


@pytest.mark.slow
def test_how_much_of_its_bound_a_recorded_model_reaches(draw, recorded):
    """A decode step had a bound, and its distance from it only for who divided the two."""
    text = shown(draw("app", about="llama3-8b", phase="decode", batch="1", on=H200))
    allowed = r"(\d\d\.\d) % of the speed that the rates of the device allow \(at least (1\.9\d) ms\)"
    found = re.search(allowed + r", without quantisation (\d\d\.\d) % \(at least (3\.5\d) ms\)", text)
    assert found, text
    assert [float(n) for n in found.groups()] == pytest.approx([80.4, 1.91, 91.7, 3.55], rel=0.01)


def test_a_run_that_has_only_begun_hides_no_result(draw, few, profiles):
    """Home said "No comparisons on this machine yet" above recent runs that listed two."""
    run = synthetic.run("20261121-120000-bench-bbbbbb", status="running")
    lock = files.take_lock(folders.write(profiles, run, []))
    try:
        assert run_data.newest("bench", recorded=False).id == run.id
        text = shown(draw("app"))
    finally:
        os.close(lock)
    assert "No comparisons on this machine yet" not in text and few["failed"].id in text, "its records"
