"""Lengths in the place of a mask: each sequence sees its own keys, and each layer its window of these."""

import pytest
import torch

from fusescope.core.errors import Unsupported
from fusescope.models.hugging_face import attend, flash, model_masks
from fusescope.models.run.kv_cache import FixedCache
from tests.models.windowed_models import MODELS, SIZES, model


@pytest.mark.parametrize("kind", MODELS)
def test_it_is_each_sequence_alone(kind):
    """The same logits as of Hugging Face's eager attention over a cache of that sequence's keys alone."""
    theirs, ours = model(kind, "eager"), model(kind, "fusescope")
    counts, layers = torch.tensor([5, 13]), SIZES["num_hidden_layers"]
    generator = torch.Generator().manual_seed(1)
    shape = 2, SIZES["num_key_value_heads"], 17, theirs.model.layers[0].self_attn.head_dim
    keys, values = ([torch.randn(shape, generator=generator) for _ in range(layers)] for _ in range(2))
    ids, places = torch.tensor([[7], [50]]), counts[:, None]
    whole = FixedCache([k.clone() for k in keys], [v.clone() for v in values], 16, counts)
    with torch.no_grad(), model_masks.masked((counts + 1).int()):
        found = ours(ids, past_key_values=whole, position_ids=places).logits
    for row, length in enumerate(counts.tolist()):
        parts = ([t[row : row + 1, :, : length + 1].clone() for t in side] for side in (keys, values))
        own = FixedCache(*parts, length)
        with torch.no_grad():
            exact = theirs(ids[row : row + 1], past_key_values=own, position_ids=places[row : row + 1]).logits
        torch.testing.assert_close(found[row], exact[0], rtol=1e-3, atol=2e-4)


def test_what_is_refused():
    q, k = torch.randn(2, 2, 1, 32).half(), torch.randn(2, 2, 20, 32).half()
    lengths = torch.tensor([3, 20], dtype=torch.int32)
    with model_masks.masked(lengths), pytest.raises(Unsupported, match="which its position_bias excludes"):
        attend.forward(torch.nn.Module(), q, k, k, None, position_bias=torch.zeros(1, 2, 1, 20))
    with pytest.raises(Unsupported, match="a sliding window over caches with lengths of their own"):
        flash.forward(torch.nn.Module(), q, k, k, lengths, sliding_window=8)
