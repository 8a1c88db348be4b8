"""A rank that fails while the others wait for it in a collective is noticed, and booked with its reason;
ranks that do not fit into main memory are refused before they start."""

from __future__ import annotations

import json
import threading

import pytest

from fusescope import models
from fusescope.core.records import case_key
from fusescope.core.reporter import Collect
from fusescope.jobs.parallel import launch
from fusescope.measure.parallel.world import Alone, Meetings, World
from fusescope.models.describe import memory

CASE = {"n": 8}
KEY = case_key("model:gpt2", CASE, "float32", "cpu")


def world_of(home, rank):
    """A world of two ranks without its process group."""
    world = World.__new__(World)
    world._meetings = Meetings(home, rank, 2)
    return world


def test_a_rank_that_failed_alone_does_not_wait_for_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr("fusescope.measure.parallel.world.ALONE_S", 0.2)
    with pytest.raises(Alone) as caught:
        world_of(tmp_path, 1).meet(("oom", "out of memory"))
    assert (caught.value.status, caught.value.reason) == ("oom", "out of memory")


def test_ranks_that_fail_alike_agree_as_ever(tmp_path):
    worlds = [world_of(tmp_path, rank) for rank in range(2)]
    failed = []

    def meet(world):
        for failure in (("error", "no such thing"), None):  # once both fail, then none does
            try:
                world.meet(failure)
            except Alone as e:
                failed.append(e)

    threads = [threading.Thread(target=meet, args=(world,)) for world in worlds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.parametrize("alone", [("oom", "rank 1: out of memory"), None])
def test_it_is_booked_on_what_was_measured(tmp_path, alone):
    if alone:
        (tmp_path / "alone-1").write_text(json.dumps(alone))
    reporter = Collect()
    words = launch._Words(reporter)
    words._on_doing({"case_key": KEY, "impl": "sdpa-tp2", "deadline_s": 300.0})
    assert words.failed("rank 0 was killed by signal 15", None, launch._alone(tmp_path)) is False
    (record,) = reporter.records
    expected = alone or ("crashed", "rank 0 was killed by signal 15")
    assert (record.impl, record.status, record.reason) == ("sdpa-tp2", *expected)


def test_ranks_that_do_not_fit_into_main_memory_are_refused(monkeypatch):
    case = {"layers": 2, "heads": 2, "head_dim": 32}
    whole = models.validate("gpt2", case)
    parameters = models.anatomy("gpt2", whole)[0].count
    least = 2 * (parameters * 4 + memory._RANK_BYTES) + parameters * 8
    monkeypatch.setattr(memory, "_available", lambda: least)
    memory.check_host("gpt2", whole, "float32", "cpu", 2)
    monkeypatch.setattr(memory, "_available", lambda: least - 1)
    with pytest.raises(ValueError, match=r"2 ranks of .* do not fit into main memory: .* are available$"):
        memory.check_host("gpt2", whole, "float32", "cpu", 2)
    memory.check_host("gpt2", whole, "float32", "cuda:0", 2)  # its reference is on the GPU
