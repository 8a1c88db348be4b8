"""Process groups of layouts: NCCL makes a group of some ranks only if all ranks of the world ask for it, all
in the same order."""

import pytest
import torch.distributed as dist

from fusescope.models.describe import layouts
from fusescope.models.parallel import groups

TEXTS = ("tp2", "pp2", "dp2", "tp2.pp2", "pp4.dp2", "tp2.pp2.dp2", "tp4.dp2")


@pytest.fixture
def asked(monkeypatch):
    """``asked(rank)``: {layout: its groups} of that rank of eight, and the groups that it asked for."""

    def of_rank(rank):
        made = []
        groups.of.cache_clear()
        monkeypatch.setattr(dist, "get_rank", lambda: rank)
        monkeypatch.setattr(dist, "new_group", lambda ranks: made.append(tuple(ranks)) or tuple(ranks))
        return {t: groups.Groups(layouts.parse(t)) for t in TEXTS}, made

    yield of_rank
    groups.of.cache_clear()


def test_every_rank_asks_for_the_same_groups_in_the_same_order_and_once(asked):
    _, first = asked(0)
    assert len(first) == len(set(first))
    assert all(asked(rank)[1] == first for rank in range(1, 8))


@pytest.mark.parametrize("text", TEXTS)
def test_a_rank_is_in_its_own_groups(asked, text):
    layout = layouts.parse(text)
    for rank in range(8):
        own = asked(rank)[0][text]
        inside = rank < layout.ranks
        assert (own.tensor is not None) == (inside and layout.tp > 1)
        assert (own.stages is not None) == (inside and layout.pp > 1)
        if own.tensor:
            assert rank in own.tensor and own.tensor == tuple(range(own.tensor[0], own.tensor[0] + layout.tp))
        if own.stages:
            assert rank in own.stages and len(own.stages) == layout.pp
            assert {b - a for a, b in zip(own.stages, own.stages[1:], strict=False)} == {layout.tp}
