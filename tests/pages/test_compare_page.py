"""The page of compared runs: which, yes or no first, what columns stand for."""

from drawn_page import calm, query, said, tables

from fusescope.store import library


def test_runs_are_compared_yes_or_no_first(draw, few):
    ids = [few["point"].id, few["recorded"].id, few["failed"].id]
    at = draw("runs", compare=",".join(ids))
    assert at.get("plotly_chart") and "B: verdict" in tables(at)[0][0] and "C: verdict" in tables(at)[0][0]
    answers = said([*at.warning, *at.success, *at.error])
    assert "May B be compared with A?" in answers and "May C be compared with A?" in answers
    assert "B against A: " in said(at.markdown) and query(at)["compare"] == ",".join(ids)
    at.multiselect(key="runs/compared").set_value(ids[:1])
    calm(at.run())
    assert query(at)["compare"] == ids[0] and "Add a second run" in said(at.info)


def test_a_run_is_added_by_the_words_that_find_it_in_the_list(draw, few):
    base, other = few["point"].id, few["recorded"].id
    at = draw("runs", compare=base)
    at.text_input(key="runs/add/text").set_value("recorded nowhere")
    calm(at.run())
    assert at.selectbox(key="runs/add").options == []
    for words in ("float16 seq=4096", "512 4096"):
        listed = [run.id for run in library.runs(kind="bench", op="attention", text=words)[0]]
        at.text_input(key="runs/add/text").set_value(words)
        calm(at.run())
        assert len(at.selectbox(key="runs/add").options) == len(set(listed) - {base})
    at.selectbox(key="runs/add").set_value(other)
    calm(at.run())
    assert query(at)["compare"] == f"{base},{other}" and at.selectbox(key="runs/add").value is None
    assert "May B be compared with A?" in said([*at.warning, *at.success, *at.error])


def test_columns_of_a_comparison_are_chosen_in_the_url(draw, few):
    at = draw("runs", compare=few["recorded"].id, by="implementation", columns="sdpa;flex", out="nothing")
    assert "flex against sdpa: " in said(at.markdown) and "Ignored out=nothing" in said(at.warning)
    assert query(at) == {"compare": few["recorded"].id, "by": "implementation", "columns": "sdpa;flex"}
