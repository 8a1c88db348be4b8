"""Each output of attention's last product by the scale of its neighbour."""

from fusescope.measure.wrong import DECODER_LAYERS
from fusescope.ops.layer.decoder_layers import decoder_layers

ON = {"decoder_layers": DECODER_LAYERS | {"layer": "llama", "weights": "int8"}}
DTYPES = ("float16", "bfloat16")


def wrong(x, layers, *given, **how):
    same = [layer._replace(output_scales=layer.output_scales.roll(1)) for layer in layers]
    return decoder_layers(x, same, *given, **how, impl="cpu" if x.is_cpu else "auto")
