"""How far an execution mode is from the float64 reference."""

from fusescope.models.run import build, modes, tolerance
from tests.models.tiny_models import built

_references: dict = {}  # the last one

QUICK = ("eager", "sdpa", "fusescope", "fused")


def worst(name, asked, way, dtype="float32"):
    """(largest error in units of what is allowed, error as a whole in such units)."""
    model = built(name, dtype) if asked["layers"] == 2 else build.build(name, asked, dtype)
    inputs = build.inputs(model, asked)
    key = (name, dtype, *asked.items())
    if key not in _references:
        _references.clear()
        _references[key] = tolerance.reference(model, inputs)
    ref = _references[key]
    out = modes.make(way, model, inputs)()
    assert out.shape == ref.shape and str(out.dtype) == f"torch.{dtype}"
    if (there := tolerance.valid(inputs, out)) is not None:
        out, ref = out[there], ref[there]
    allowed = tolerance.tolerance(asked["layers"], dtype)
    error = (out.double() - ref).abs()
    norm = float((out.double() - ref).norm() / ref.norm())
    return float(
        (error / (allowed.absolute + allowed.relative * ref.abs())).max()
    ), norm / tolerance.allowed_norm(asked["layers"], dtype)
