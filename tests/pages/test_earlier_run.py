"""A result that is not what the form asks for says so in its heading: nobody takes it for the new one's."""

import folders
import pytest
import synthetic
from drawn_page import calm, said

from fusescope.jobs import submit
from fusescope.store import folder

OLD, NEW = "20261120-100000-bench-111111", "20261121-100000-bench-222222"
EARLIER = "Result of an earlier run: "


def dimmed(at) -> bool:
    return any("old_answer_heading" in str(block.proto) for block in _blocks(at.main))


def _blocks(block):
    for child in block.children.values():
        if hasattr(child, "children"):
            yield child
            yield from _blocks(child)


@pytest.fixture
def old(profiles):
    spec = synthetic.SPEC | {"impls": ["eager", "cpu"], "baseline": "eager", "dtype": "float32"}
    spec |= {"device": "cpu", "cache": "both"}
    run = synthetic.run(OLD, title="the old one", spec=spec)
    folders.write(profiles, run, synthetic.point())
    return run


def test_after_a_cancelled_run_the_one_before_is_called_so(draw, profiles, old):
    empty = synthetic.run(NEW, status="cancelled", reason="by user", spec=old.spec)
    folders.write(profiles, empty, [])
    at = draw("kernels", op="attention", run=NEW)
    assert "cancelled before any result" in said(at.caption)
    assert f"{EARLIER}the old one" in said(at.markdown) and dimmed(at)


def test_with_other_settings_it_is_called_so(draw, old):
    at = draw("kernels", run=OLD)
    assert "the old one" in said(at.markdown) and EARLIER not in said(at.markdown) and not dimmed(at)
    key = next(t.key for t in at.text_input if t.key.endswith("/seq/typed"))
    calm(at.text_input(key=key).set_value("96").run())
    assert f"{EARLIER}the old one" in said(at.markdown) and dimmed(at)


def test_with_a_size_that_cannot_be_read_it_is_called_so(draw, old):
    """The settings before the mistake stayed the form's, so the result looked like theirs."""
    at = draw("kernels", run=OLD)
    key = next(t.key for t in at.text_input if t.key.endswith("/seq/typed"))
    calm(at.text_input(key=key).set_value("12abc").run())
    assert f"{EARLIER}the old one" in said(at.markdown) and dimmed(at)


def test_a_run_that_is_being_cancelled_says_so(draw, profiles, old, monkeypatch):
    live = synthetic.run(NEW, status="running", spec=old.spec)
    folders.write(profiles, live, synthetic.point())
    monkeypatch.setattr(folder, "alive", lambda path: True)
    for asked, says in ((False, "▶ running"), (True, "■ cancelling")):
        monkeypatch.setattr(submit, "cancelling", lambda run_id, asked=asked: asked)
        at = draw("kernels", op="attention", run=NEW)
        assert says in said(at.markdown)


def test_run_says_how_many_jobs_go_before(draw, monkeypatch):
    job = {"id": NEW, "kind": "bench", "title": "", "status": "running", "place": 0, "device": "cpu"}
    monkeypatch.setattr(submit, "queue", lambda: [])
    assert "starts after" not in said(draw("kernels", op="softmax").caption)
    monkeypatch.setattr(submit, "queue", lambda: [job, job | {"device": "cuda:7"}, job])
    assert "; it starts after 2 jobs on this device" in said(draw("kernels", op="softmax").caption)
