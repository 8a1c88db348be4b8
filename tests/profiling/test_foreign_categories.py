"""Traces of other programs, whose events carry no category that a profile knows."""

from made_up import kernel, load, trace, x


def said(folder, events) -> list[str]:
    folder.mkdir()
    return load(trace(folder / "t.json", events), folder / "out")[0]["notes"]


def test_a_trace_without_known_categories_says_why_its_views_are_empty(tmp_path):
    """Its six kernels had become "No GPU in this profile" and "no timeline", without a word of why."""
    strange = [x("", "my_gemm", 10, 5), x("gpu things", "my_relu", 20, 5)]
    (note,) = said(tmp_path / "a", strange)
    assert note.startswith("no event has the category (cat)") and "all 2 are in Tables as ranges" in note
    assert not any("category" in note for note in said(tmp_path / "b", [*strange, kernel(1, 30, 5)]))


def test_times_of_ranges_alone_are_counted_from_the_first(tmp_path):
    ranges = [x("user_annotation", "one", 1_000_000, 5), x("user_annotation", "two", 1_000_020, 10)]
    summary = load(trace(tmp_path / "t.json", ranges), tmp_path / "out")[0]
    assert summary["span_ns"] == [1_000_000_000, 1_000_030_000]
