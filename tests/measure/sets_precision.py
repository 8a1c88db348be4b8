"""An implementation of tensor add whose file changes a setting of the whole process when it is imported."""

import torch

torch.backends.cuda.matmul.allow_tf32 = True


def right(a, b):
    return torch.add(a, b)
