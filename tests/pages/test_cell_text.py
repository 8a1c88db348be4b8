"""Texts of the list of runs are cut where they are alike, never where they differ."""

import synthetic

from pages._ui.runs import selection
from pages._ui.widgets import cell_text

BESIDE = "Attention fp16 beside SDPA, FlexAttention and FlashAttention-4: 8 masks "
NAMES = [BESIDE + "on 10 shapes", BESIDE + "at S = 128 and 512", BESIDE + "at S = 2048 and 4096"]


def test_names_that_would_read_alike_keep_the_end_in_which_they_differ():
    rope = "RoPE + KV cache write fp16: decoding and prefill of Llama"
    found = cell_text.apart([*NAMES, "short", rope], 282)
    assert [text.partition("… ")[2] for text in found[:3]] == [
        "8 masks on 10 shapes",
        "8 masks at S = 128 and 512",
        "8 masks at S = 2048 and 4096",
    ]
    assert all(text.startswith("Attention fp16") for text in found[:3])
    assert found[3] == "short" and found[4].startswith("RoPE + KV") and found[4].endswith("…")
    assert all(cell_text._width(text) <= 282 for text in found)
    whole = "Attention fp16: masks of whole 64 × 64 blocks"
    found = cell_text.apart([f"{whole}, (16, 512) and (16, 2048)", whole], 282)
    assert found[0].endswith("… (16, 512) and (16, 2048)") and found[1] == whole


def test_equal_names_and_what_is_no_text_stay_as_they_are_cut():
    assert cell_text.apart([NAMES[0], NAMES[0], None], 282)[0].endswith("…")
    assert cell_text.apart([None, 3.0], 282) == [None, 3.0]


def test_the_telling_part_begins_at_a_mark_or_a_word():
    assert cell_text.telling(NAMES)[0] == "8 masks on 10 shapes"
    assert cell_text.telling(["GPT-2 fp16 decode", "GPT-2 fp16 prefill"]) == ["decode", "prefill"]
    assert cell_text.telling(["one", "other"]) == ["one", "other"]
    assert cell_text.telling(["a b", "a b"]) == ["a b"] * 2 and cell_text.telling(["a", "a b"])[1] == "b"


def test_the_base_of_a_selection_is_named_by_what_differs():
    first, second = (synthetic.run(f"2026112{n}-120000-bench-00000{n}", title=NAMES[n]) for n in (0, 1))
    assert selection.base([first, second]) == "… 8 masks on 10 shapes."
    again = synthetic.run("20261127-120000-bench-000007", title=NAMES[0])
    assert selection.base([first, again]).startswith("Attention fp16 beside SDPA") and " of " in (
        selection.base([first, again])
    )
    assert not selection.base([synthetic.run(title="x" * 90), second]).endswith("….")


def test_a_result_keeps_its_counts():
    text = "compile-reduce-overhead fastest in 1 of 2, 1 tied"
    found = cell_text.keep_end(text, " fastest in 1 of 2, 1 tied", 224, 0.85)
    assert found.startswith("compile-red") and found.endswith("… fastest in 1 of 2, 1 tied")
    assert cell_text.keep_end("v1 fastest in 1 of 2", " fastest in 1 of 2", 224) == "v1 fastest in 1 of 2"


def test_the_name_of_a_selected_run_is_whole_where_there_is_room(monkeypatch):
    """Names in the list ended in "…", and nothing said how to read them."""
    name = "Linear layer fp16: decoding of GPT-2 small and Llama 8B, 1 to 16 rows"
    monkeypatch.setattr(selection.screen, "width", lambda: 1440)
    assert name in selection._said([synthetic.run(title=name)]).replace("\\", "")
    monkeypatch.setattr(selection.screen, "width", lambda: 1024)
    assert "…" in selection._said([synthetic.run(title=name)]), "one line"
