"""Adds in a thread that it does not wait for, a while after the call has returned."""

import threading
import time

import torch

ON = {"add": {"n": 1000}}
DTYPES = ("float32", "float16")


def wrong(a, b):
    out = torch.empty_like(a)

    def work():
        time.sleep(0.2)
        torch.add(a, b, out=out)

    threading.Thread(target=work).start()
    return out
