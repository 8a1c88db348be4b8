"""SwiGLU's gate by the scales of up, and the reverse."""

from fusescope.measure.wrong import DECODER_LAYERS
from fusescope.ops.layer.decoder_layers import decoder_layers

ON = {"decoder_layers": DECODER_LAYERS | {"layer": "llama", "weights": "fp8"}}
DTYPES = ("float16", "bfloat16")


def wrong(x, layers, *given, **how):
    half = layers[0].second.shape[1]
    same = [layer._replace(first_scales=layer.first_scales.roll(half)) for layer in layers]
    return decoder_layers(x, same, *given, **how, impl="cpu" if x.is_cpu else "auto")
