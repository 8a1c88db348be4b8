"""The fused encoder: padding is removed and put back, intermediate results have Hugging Face's names."""

import pytest

from fusescope.models.run import build
from tests.models.tiny_models import built, case

pytestmark = pytest.mark.usefixtures("cpu_kernels")


@pytest.mark.parametrize("mask", ["full", "causal", "sliding_window:left=3,right=2"])
def test_padding_is_removed_and_put_back_as_zeros(mask):
    from fusescope.models.run.fused_encoder import FusedEncoder

    asked = case("bert-base", lengths="9+17", mask=mask)
    model = built("bert-base")
    inputs = build.inputs(model, asked)
    seen = {}
    for total in (None, 28, 34):  # the sum itself, and buckets above it
        out = FusedEncoder(model, asked)(
            inputs, record=lambda n, t: seen.setdefault(n, []).append(t.shape), total=total
        )
        assert out.shape == (2, 17, 64) and bool((out[0, 9:] == 0).all()) and bool((out[0, :9] != 0).any())
    assert [s[0] for s in seen["encoder.layer.1.output"]] == [26, 28, 34]


def test_records_of_the_fused_encoder_have_hugging_face_names():
    import torch

    from fusescope.models.run.fused_encoder import FusedEncoder

    for name in ("bert-base", "vit-base"):
        asked = case(name)
        model = built(name)
        inputs, seen, theirs = build.inputs(model, asked), {}, {}
        FusedEncoder(model, asked)(inputs, record=seen.__setitem__)
        module = model.fresh("eager")
        for part, m in module.named_modules():
            m.register_forward_hook(
                lambda _m, _i, o, part=part, at=theirs: at.__setitem__(
                    part, o[0] if isinstance(o, tuple) else o
                )
            )
        with torch.no_grad():
            build.call(module, inputs)
        assert len(seen) >= 9
        for part, out in seen.items():
            assert (out - theirs[part]).abs().max() < 1e-4, part


def test_buckets_are_few_and_hold_every_sum():
    from fusescope.models.run.fused_run import bucket

    for batch, seq in ((16, 512), (1, 128), (3, 77), (16, 2048)):
        found = {bucket(t, batch, seq) for t in range(1, batch * seq + 1)}
        assert len(found) <= 33 and max(found) == batch * seq
        assert all(bucket(t, batch, seq) >= t for t in (1, seq, batch * seq))
