"""Score sparsity on real, tiny models: what is counted is what the model's own probabilities are, inputs of
every kind."""

import json

import numpy as np
import pytest
import torch

from fusescope import models
from fusescope.core.reporter import Collect
from fusescope.jobs.kinds import scores as kind
from fusescope.models.run import build
from fusescope.models.scores import input, job
from fusescope.store import tables

SMALL = {"layers": 2, "heads": 2, "head_dim": 16, "batch": 2, "seq": 12}


def report(tmp_path, **spec):
    reporter = Collect(tmp_path / "artifacts")
    kind.run(kind.validate({"model": "bert-small", "case": SMALL, "tile": 16} | spec), reporter)
    return tables.read(tmp_path, "scores"), reporter


@pytest.mark.parametrize(
    "name, changes",
    [
        ("bert-small", {"lengths": "12+5"}),
        ("gpt2", {}),
        ("bert-small", {"mask": "sliding_window:left=2,right=0"}),
    ],
)
def test_shares_are_those_of_the_probabilities_that_hugging_face_returns(name, changes):
    case = models.validate(name, SMALL | changes)
    model = build.build(name, case, "float32")
    inputs = build.inputs(model, case)
    found = job.look(model, inputs, "float32", 16)
    module = model.view("eager")
    settings = {
        "input_ids": inputs["input_ids"],
        "output_attentions": True,
        "attention_mask": inputs["additive"],
    }
    with torch.no_grad():
        theirs = (module if name == "bert-small" else module.base_model)(**settings).attentions
    assert len(found) == len(theirs) == 2
    for layer, p in zip(found, theirs, strict=True):
        for h, head in enumerate(layer["heads"]):
            values = []
            for i, n in enumerate(inputs["lengths"]):
                kept = torch.ones(n, n, dtype=torch.bool)
                if name == "gpt2":
                    kept = kept.tril()
                elif inputs["keep"] is not None:
                    kept = inputs["keep"].expand(2, 1, 12, 12)[i, 0, :n, :n]
                values.append(p[i, h, :n, :n][kept])
            values = torch.cat(values)
            assert head["live"] == len(values)
            assert head["below"][:2] == [int((values < t).sum()) for t in (1e-1, 1e-2)]
            assert (
                sum(head["histogram"]) == len(values) - head["zeros"]
                and 0 <= head["entropy"] <= head["most_bits"] + 1e-6
            )


def test_the_report_says_what_padding_wastes(tmp_path):
    found, reporter = report(tmp_path, case=SMALL | {"lengths": "12+5"}, dtype="float16")
    assert found["lengths"] == [12, 5] and found["padding"]["tokens"] == pytest.approx(7 / 24)
    assert found["layers"][0]["shape"] == [12, 12] and found["layers"][0]["side"] == 1
    assert "below 1e-3" in reporter.steps[-1][2] and found["dtype"] == "float16"
    json.dumps(found, allow_nan=False)


def test_token_ids_come_from_a_file(tmp_path):
    np.save(tmp_path / "t.npy", np.array([[5, 6, 7], [8, 9, 10]]))
    (tmp_path / "t.txt").write_text("5 6 7\n\n8, 9\n")
    assert input.tokens(str(tmp_path / "t.npy")) == [[5, 6, 7], [8, 9, 10]]
    found, _ = report(tmp_path, input={"tokens": str(tmp_path / "t.txt")})
    assert (found["case"]["batch"], found["case"]["seq"], found["lengths"]) == (2, 3, [3, 2])


def test_a_text_goes_through_a_local_tokenizer(tmp_path):
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers import models as kinds
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(kinds.WordLevel({"[UNK]": 0, "the": 1, "cat": 2, "sat": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(tmp_path / "words")
    assert input.encode("the cat sat there", str(tmp_path / "words")) == [[1, 2, 3, 0]]
    found, _ = report(tmp_path, input={"text": "the cat sat there", "tokenizer": str(tmp_path / "words")})
    assert (found["case"]["batch"], found["case"]["seq"]) == (1, 4)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="cannot be loaded") as caught:
        input.encode("x", str(tmp_path / "empty"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content, says",
    [
        ("1 2\n3 x", "whole number"),
        ("", "no sequence"),
        ("1 -2", "below 0"),
        ("1 999999", "30,522"),
        (b"\x93NUMPY", "t.txt"),
    ],
)
def test_a_wrong_file_of_tokens_is_one_sentence(tmp_path, content, says):
    file = tmp_path / "t.txt"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=says) as caught:
        kind.validate({"model": "bert-base", "input": {"tokens": str(file)}})
    assert "\n" not in str(caught.value)


def test_a_file_that_would_run_code_does_not(tmp_path):
    np.save(tmp_path / "t.npy", np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match=r"no whole \.npy file of numbers"):
        input.tokens(str(tmp_path / "t.npy"))
    np.save(tmp_path / "f.npy", np.ones(3))
    with pytest.raises(ValueError, match="float64"):
        input.tokens(str(tmp_path / "f.npy"))


@pytest.mark.parametrize(
    "change, says",
    [
        ({"tile": 7}, "tile must be 16, 32, 64 or 128"),
        ({"dtype": "int8"}, "int8"),
        ({"input": "poem"}, "poem"),
        ({"input": {"text": "x"}}, "input is"),
        ({"input": {"text": "x", "tokenizer": "/nowhere"}}, "nowhere"),
        ({"input": {"tokens": "/nowhere"}}, "cannot be read"),
        ({"model": "gpt2", "case": {"phase": "decode"}}, "prefill"),
    ],
)
def test_a_spec_that_cannot_be_is_one_sentence(change, says):
    with pytest.raises(ValueError, match=says):
        kind.validate({"model": "bert-small"} | change)
