"""Sequences that lie one after another in a row, as padding-free batches have them: each as on its own, by
attention_varlen where nothing but a window is asked for."""

import pytest
import torch

from fusescope.core.errors import Unsupported
from fusescope.models.hugging_face import model_masks, packed
from fusescope.ops import attention as room
from tests.models.windowed_models import MODELS, SIZES, model

LENGTHS = ((5, 17, 1, 9), (30, 2))  # the window is 8
PLAIN = [kind for kind in MODELS if kind not in ("gemma2", "gpt_oss")]  # without soft-caps and sinks


@pytest.fixture
def calls(monkeypatch):
    """(rows, offsets, window) of each call of attention_varlen."""
    found, own = [], room.attention_varlen

    def seen(q, k, v, offsets, _, **given):
        found.append((q.shape[0], offsets.tolist(), given["window"]))
        return own(q, k, v, offsets, offsets, **given)

    monkeypatch.setattr(room, "attention_varlen", seen)
    return found


def laid(lengths):
    """(ids, position_ids) of one row."""
    ids = torch.randint(3, 99, (1, sum(lengths)), generator=torch.Generator().manual_seed(len(lengths)))
    return ids, torch.cat([torch.arange(n) for n in lengths])[None]


def run(made, ids, places, **more):
    with torch.no_grad():
        return made(ids, position_ids=places, use_cache=False, **more).logits


@pytest.mark.parametrize("kind", MODELS)
def test_each_is_as_on_its_own(kind, calls):
    theirs, ours = model(kind, "eager"), model(kind, "fusescope")
    for lengths in LENGTHS:
        ids, places = laid(lengths)
        calls.clear()
        out = run(ours, ids, places)
        torch.testing.assert_close(out, run(theirs, ids, places), rtol=1e-3, atol=2e-4)
        begin = 0
        for n in lengths if kind != "gpt_oss" else ():  # transformers makes its mask without position_ids
            alone = run(theirs, ids[:, begin : begin + n], places[:, begin : begin + n])
            torch.testing.assert_close(out[:, begin : begin + n], alone, rtol=1e-3, atol=2e-4)
            begin += n
        if kind not in PLAIN:
            assert not calls, "scores are changed, which packed attention does not do"
            continue
        offsets = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
        assert [call[:2] for call in calls] == [(sum(lengths), offsets)] * SIZES["num_hidden_layers"]
        windows = (
            {None} if kind == "llama" else {(7, 0)} if kind in ("mistral", "phi3", "starcoder2") else None
        )
        assert windows is None or {call[2] for call in calls} == windows
        assert {call[2] for call in calls} <= {None, (7, 0)}


def test_rows_of_a_batch_have_sequences_of_their_own(calls):
    theirs, ours = model("mistral", "eager"), model("mistral", "fusescope")
    rows = [laid(lengths) for lengths in ((5, 17, 10), (32,), (3, 29))]
    ids, places = (torch.cat(tensors) for tensors in zip(*rows))
    torch.testing.assert_close(run(ours, ids, places), run(theirs, ids, places), rtol=1e-3, atol=2e-4)
    assert calls[0][:2] == (96, [0, 5, 22, 32, 64, 67, 96])


def test_offsets_for_flash_attention_are_taken_where_the_mask_says_the_same(calls):
    ours, lengths = model("mistral", "fusescope"), LENGTHS[0]
    ids, places = laid(lengths)
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    given = dict(cu_seq_lens_q=offsets, cu_seq_lens_k=offsets, max_length_q=17, max_length_k=17)
    torch.testing.assert_close(run(ours, ids, places, **given), run(ours, ids, places))
    alone = torch.tensor([0, sum(lengths)])
    one = dict(given, cu_seq_lens_q=alone, cu_seq_lens_k=alone)
    llama, places_of_one = model("llama", "fusescope"), torch.arange(sum(lengths))[None]
    torch.testing.assert_close(run(llama, ids, places_of_one, **one), run(llama, ids, places_of_one))
    for wrong in (one, dict(given, cu_seq_lens_q=offsets[[0, 1, 3, 4]])):
        with pytest.raises(Unsupported, match="cu_seq_lens_q that its mask does not have"):
            run(ours, ids, places, **wrong)
    with pytest.raises(Unsupported, match="goes by position_ids"):
        run(llama, ids, places_of_one, **given)


def test_a_plan_in_the_place_of_masks_stays(calls):
    """The model then attends by the plan alone."""
    from fusescope import masks
    from fusescope.ops.attention import prepare

    ours = model("llama", "fusescope")
    ids, places = laid(LENGTHS[0])
    with model_masks.masked(prepare(masks.parse("causal"), 32, 32)):
        run(ours, ids, places)
    assert not calls


def test_a_mask_that_a_model_changes_carries_nothing():
    from transformers import masking_utils as theirs

    places = laid(LENGTHS[0])[1]
    ids = theirs.find_packed_sequence_indices(places)
    inside = theirs.sliding_window_causal_mask_function(4)
    joined = theirs.packed_sequence_compatibility_function(inside, places, ids)
    given = dict(q_length=32, kv_length=32, batch_size=1, local_size=4, allow_is_causal_skip=False)
    keep = model_masks.mask(mask_function=joined, **given)
    assert packed.of(keep).offsets.tolist() == [0, 5, 22, 23, 32] and packed.of(keep).window == 4
    assert packed.of(keep & True) is None
    other = theirs.or_masks(inside, lambda b, h, q, k: k == 0)
    joined = theirs.packed_sequence_compatibility_function(other, places, ids)
    assert packed.of(model_masks.mask(mask_function=joined, **given)) is None
