"""A module's layers divided over ranks, without processes: what the ranks have together is the whole."""

import pytest
import torch

from fusescope import models
from fusescope.models.describe import layouts
from fusescope.models.parallel import split as splitting
from fusescope.models.run import build

DIVIDED = [n for n in ("bert-small", "gpt2", "llama-small") if hasattr(models.family(n), "PARALLEL")]


@pytest.mark.parametrize("name", DIVIDED)
def test_ranks_have_together_what_the_layer_has(name, monkeypatch):
    case = models.validate(name, {"batch": 1, "seq": 8, "layers": 1, "heads": 4, "head_dim": 32})
    model, split = build.build(name, case, "float32"), layouts.split_of(name)
    monkeypatch.setattr(splitting.dist, "all_reduce", lambda partial, group: None)
    whole, ranks = _base(model), [_base(model) for _ in range(2)]
    for rank, base in enumerate(ranks):
        splitting.divide(base, split, 2, rank, None)
    layer, *shares = (splitting.layers_of(base, split)[0] for base in (whole, *ranks))
    for module in (*split.columns, *split.packed, *split.rows):
        theirs = layer.get_submodule(module)
        weight = theirs.weight.t() if hasattr(theirs, "nf") else theirs.weight  # Conv1D: (in, out)
        x = torch.randn(3, weight.shape[1], generator=torch.Generator().manual_seed(1))
        expected = x @ weight.t() + (0 if theirs.bias is None else theirs.bias)
        mine = [share.get_submodule(module) for share in shares]
        if module in split.rows:
            found = sum(m(part) for m, part in zip(mine, x.chunk(2, 1)))
        elif module in split.packed:  # each rank has its own query, key and value, one after the other
            pieces = [m(x).chunk(3, 1) for m in mine]
            found = torch.cat([piece[kind] for kind in range(3) for piece in pieces], 1)
        else:
            found = torch.cat([m(x) for m in mine], 1)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def _base(model):
    module = model.fresh("eager")
    return getattr(module, "base_model", module)
