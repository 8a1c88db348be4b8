"""The verb scores: a job on a tiny model, its JSON by its schema, and inputs that cannot be."""

import pytest


@pytest.mark.slow
def test_a_tiny_model_is_looked_at(call, valid, profiles, tmp_path, in_this_process):
    (tmp_path / "t.txt").write_text("5 6 7 8\n9 10\n")
    sizes = ("--layers", "1", "--heads", "2", "--head-dim", "16")
    done = call(
        "scores",
        "bert-small",
        *sizes,
        "--tokens",
        tmp_path / "t.txt",
        "--tile",
        "16",
        "--device",
        "cpu",
        "--json",
    )
    assert done.code == 0, done.err
    valid("scores", done.data)
    assert (
        done.data["lengths"] == [4, 2]
        and done.data["padding"]["tokens"] == 0.25
        and len(done.data["layers"][0]["heads"]) == 2
    )
    assert done.data["layers"][0]["heads"][0]["live"] == 16 + 4


@pytest.mark.parametrize(
    "words, says",
    [
        (["--text", "/nowhere"], "--tokenizer"),
        (["--text", "/nowhere", "--tokenizer", "/tmp"], "/nowhere"),
        (["--seq", "8,16"], "one case"),
        (["--tokens", "/nowhere"], "cannot be read"),
        (["--tile", "7"], "7"),
        (["--text", "a", "--tokenizer", "b", "--tokens", "c"], "--tokens"),
    ],
)
def test_an_input_that_cannot_be_is_one_sentence(call, profiles, words, says):
    done = call("scores", "bert-small", *words, "--device", "cpu")
    assert (
        done.code == 2
        and says in done.err
        and done.err.startswith("error: ")
        and len(done.err.strip().splitlines()) == 1
    )
