"""Whose devices measure: the choice on the Kernels page, its mistakes, and the workers of a run."""

from __future__ import annotations

from drawn_page import said

from fusescope.core.records import Run
from pages._ui.answer import workers


def test_the_choice_and_its_mistakes(draw):
    at = draw("kernels", op="softmax", cluster="address", scheduler="nonsense")
    assert at.error and not at.exception, said(at.error)
    key = "kernels/measured_by"
    assert at.session_state[key] == "", "what is refused is not submitted"
    box = next(box for box in at.text_input if box.label == "scheduler")
    box.set_value("tcp://127.0.0.1:8786").run()
    assert not at.exception and at.session_state[key] == "tcp://127.0.0.1:8786"
    assert not any("cluster" in text.value for text in at.error)


def test_a_row_of_a_worker():
    worker = {"name": "worker 1", "device_name": "NVIDIA | H200", "host": "gpu", "done": 3, "lost": True}
    row = workers._row(worker)
    assert row.endswith("| lost |") and row.count(" | ") == 4 and "n/a" not in row
    assert "n/a" in workers._row({"name": "worker 2"})


def test_a_run_without_workers_says_nothing(monkeypatch):
    drawn = []
    monkeypatch.setattr(workers.st, "markdown", drawn.append)
    for found in (None, "no list", [1], []):
        workers.draw(Run("r", "bench", {}, "done", environment={"workers": found}), [])
    assert not drawn
