"""Accuracy by depth on real, tiny models: correct ways are accepted everywhere, and a planted mistake is
found where it was planted."""

import json

import pytest
import torch

from fusescope.core.reporter import Collect
from fusescope.jobs.kinds import accuracy as kind
from fusescope.models.accuracy import exact as accuracy_exact
from fusescope.models.accuracy import hooks, job, select
from fusescope.models.run import build, modes
from fusescope.store import tables

SMALL = {"layers": 2, "heads": 2, "head_dim": 16, "batch": 2, "seq": 12}


def made(name="bert-small", dtype="float32", **changes):
    from fusescope import models

    case = models.validate(name, SMALL | changes)
    model = build.build(name, case, dtype)
    return model, build.inputs(model, case), case


def rows_of(way, *args, **kwargs):
    model, inputs, case = made(*args, **kwargs)
    return job.compare(model, inputs, case, way, model.dtype)["rows"]


@pytest.mark.sample(1, "t5-small-changes5")
@pytest.mark.slow
@pytest.mark.parametrize(
    "name, changes",
    [
        ("bert-small", {"lengths": "12+5"}),
        ("bert-small", {"mask": "sliding_window:left=2,right=1"}),
        ("gpt2", {}),
        ("llama-small", {}),
        ("llama-small", {"phase": "decode"}),
        ("t5-small", {"lengths": "12+5"}),
    ],
)
def test_every_family_is_judged_inside_and_accepted(name, changes):
    if name == "llama-small":
        changes = changes | {"heads": 8}  # a whole number of heads a KV head
    rows = rows_of("sdpa", name, **changes)
    assert all(r["accepted"] for r in rows), [r["name"] for r in rows if not r["accepted"]]
    assert rows[-1]["level"] == "model" and {r["level"] for r in rows} == {
        "model",
        "module",
        "kernel",
        "inside",
    }
    inner = {r["name"].partition(":")[2] for r in rows if ":" in r["name"]}
    assert inner == {"query", "key", "value", "probabilities", "context"}, (
        "scores exist in memory in the eager form alone"
    )
    assert any(r["own"] and r["own"]["relative_l2"] > 0 for r in rows)
    json.dumps(rows, allow_nan=False)


def test_eager_has_its_scores_and_half_precision_errs_more():
    full, half = rows_of("eager"), rows_of("eager", dtype="bfloat16")
    assert [r["name"] for r in full] == [
        r["name"] for r in half
    ] and "encoder.layer.1.attention.self:scores" in {r["name"] for r in full}
    assert all(r["accepted"] for r in full + half)
    assert half[-1]["relative_l2"] > 1000 * full[-1]["relative_l2"] and half[-1]["relative_l2"] > 1e-4


def test_a_mistake_is_found_where_it_was_planted(monkeypatch):
    """Attention of the second layer scales its scores wrongly; nothing before it is blamed, and its own error
    says which it is."""
    model, inputs, case = made()
    make = modes.make

    def planted(way, model, inputs):
        call, module = make(way, model, inputs), model.view(way)
        module.encoder.layer[1].attention.self.scaling *= 1.2
        return call

    monkeypatch.setattr(modes, "make", planted)
    rows = job.compare(model, inputs, case, "eager", "float32")["rows"]
    bad = [r["name"] for r in rows if not r["accepted"]]
    assert bad[0] == "encoder.layer.1.attention.self:scores" and bad[-1] == job.OUTPUT
    assert not any(name.startswith("encoder.layer.0") for name in bad)


def test_a_kernel_s_own_error_is_told_from_what_came_before():
    """A linear layer with a wrong weight errs by itself; what follows is off by it and right by itself."""
    model, inputs, case = made()
    reference = model.reference

    def exact(dtype):
        found = reference(dtype)
        found.encoder.layer[0].output.dense.weight.mul_(1.01)
        return found

    model.reference = exact
    rows = {r["name"]: r for r in job.compare(model, inputs, case, "sdpa", "float32")["rows"]}
    wrong, after = rows["encoder.layer.0.output.dense"], rows["encoder.layer.1.attention.self.query"]
    assert (
        wrong["own"]["relative_l2"] > 1e-3
        and after["relative_l2"] > 1e-4
        and after["own"]["relative_l2"] < 1e-6
    )


def test_padding_does_not_count():
    """Garbage in the padded tokens of a result changes no figure; in the others it does."""
    model, inputs, case = made(lengths="12+5")
    out = build.call(model.view("eager"), inputs)
    lengths = select.lengths(inputs, case)
    spoilt = out.clone()
    spoilt[1, 5:] = 99.0
    assert torch.equal(*select.pair(spoilt, out, lengths))
    spoilt[1, 4] = 99.0
    assert not torch.equal(*select.pair(spoilt, out, lengths))
    packed = torch.cat([out[0], out[1, :5]])
    assert torch.equal(*select.pair(packed, out, lengths)), "packed results are compared as they are"
    with pytest.raises(ValueError, match="not comparable"):
        select.pair(out[:, :3], out, lengths)
    assert select.lengths({"lengths": [12, 12]}, case) is None
    scores = torch.arange(2 * 3 * 12 * 12).reshape(2, 3, 12, 12)
    assert select.valid(scores, lengths, "bhss").numel() == 3 * (144 + 25)
    assert select.valid(scores[..., :4], lengths, "bhsd").shape == (17, 3, 4)


def test_float64_stays_float64_where_a_model_asks_for_less():
    model, inputs, _ = made("llama-small", heads=8)
    reference = model.reference(torch.float64)
    exact = inputs | {"cache": inputs["cache"].to(torch.float64)}
    with torch.no_grad():
        loose = build.call(reference, exact)
        with accuracy_exact.float64_stays():
            tight = build.call(reference, exact)
            again = (torch.ones(1, dtype=torch.float64) / 3).float()
            whole = torch.tensor([2**24 - 1]).float()
    assert tight.dtype == torch.float64 and 1e-9 < float((tight - loose).abs().max()) < 1e-4
    assert again.dtype == torch.float64 and whole.dtype == torch.float32
    assert (torch.ones(1, dtype=torch.float64) / 3).float().dtype == torch.float32, "outside all is as it was"


def test_probabilities_of_a_black_box():
    q, k, v = (torch.randn(1, 4, 11, 8, generator=torch.Generator().manual_seed(i)) for i in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    found = hooks.probabilities(lambda q, k, v: (attend(q, k, v).transpose(1, 2), None), q, k, v)
    assert torch.allclose(found, torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1), atol=1e-6)


@pytest.mark.slow
def test_parts_of_a_model_that_do_not_fit_are_looked_at_in_turn(monkeypatch):
    model, inputs, case = made()
    whole = job.compare(model, inputs, case, "sdpa", "float32")["rows"]
    monkeypatch.setattr(job, "_BUDGET", {"cpu": 20_000})
    assert job.compare(model, inputs, case, "sdpa", "float32")["rows"] == whole


def test_the_job_leaves_a_report_and_a_way_that_fails_is_a_result(tmp_path, monkeypatch):
    spec = kind.validate(
        {
            "model": "bert-small",
            "case": SMALL,
            "entries": [["eager", "float32"], ["flex", "float32"]],
            "inside": False,
        }
    )
    make = modes.make

    def refusing(way, model, inputs):
        if way == "flex":
            raise RuntimeError("no compiler here\nmore")
        return make(way, model, inputs)

    monkeypatch.setattr(modes, "make", refusing)
    reporter = Collect(tmp_path / "artifacts")
    kind.run(spec, reporter)
    good, bad = tables.read(tmp_path, "accuracy")["entries"]
    assert bad["reason"] == "no compiler here" and bad["rows"] == [] and not good["reason"]
    assert not any(":" in r["name"] for r in good["rows"]) and good["rows"][-1]["accepted"]
    assert "accepted everywhere" in reporter.steps[-1][2] and "no compiler here" in "".join(reporter.lines)


@pytest.mark.parametrize(
    "change, says",
    [
        ({"entries": []}, "one or more"),
        ({"entries": [["eager"]]}, "an entry must be"),
        ({"entries": [["eager", "int8"]]}, "int8"),
        ({"entries": [["nothing", "float32"]]}, "nothing"),
        ({"entries": [["eager", "float32"]] * 2}, "once"),
        ({"model": "bort"}, "bort"),
        ({"model": None}, "needs model"),
        ({"case": {"heads": 7}}, "7"),
        ({"case": {"batch": 64, "seq": 16384}}, "64 GiB"),
        ({"device": "cuda:9"}, "cuda:9"),
        ({"seed": -1}, "-1"),
        ({"colour": 1}, "colour"),
        ({"case": {"seq": 9}, "checkpoint": "/nowhere"}, "nowhere"),
    ],
)
def test_a_spec_that_cannot_be_is_one_sentence(change, says):
    spec = {"model": "bert-base", "entries": [["eager", "float32"]]} | change
    with pytest.raises(ValueError, match=says) as caught:
        kind.validate(spec)
    assert "\n" not in str(caught.value)


def test_a_report_that_is_torn_or_newer_is_one_sentence(tmp_path):
    import gzip

    from fusescope.core.errors import RunError

    with pytest.raises(RunError, match="no accuracy report"):
        tables.read(tmp_path, "accuracy")
    (tmp_path / "artifacts").mkdir()
    file = tmp_path / "artifacts" / "accuracy.json.gz"
    for content, says in (
        (b"x", "cannot be read"),
        (gzip.compress(b"[1]"), "is no"),
        (gzip.compress(b'{"schema": 99}'), "newer"),
        (gzip.compress(b'{"schema": 1}')[:-6], "cannot be read"),
    ):
        file.write_bytes(content)
        with pytest.raises(RunError, match=says):
            tables.read(tmp_path, "accuracy")
