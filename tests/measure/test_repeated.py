"""Callables that answer repeated calls on the same values from what they have kept: seen by their time."""

import math
import random
import time

import pytest
import torch

from fusescope.measure.checking import repeated
from fusescope.measure.checking.inputs import Kept


def kept(n=64):
    inputs = {"a": torch.randn(n), "count": torch.arange(n), "several": [torch.randn(n)]}
    return Kept(
        inputs,
        {"a": inputs["a"].clone(), "count": inputs["count"].clone()}
        | {"several[0]": inputs["several"][0].clone()},
    )


def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_what_computes_again_is_not_accused():
    case = kept()
    assert repeated.slower_on_others(lambda: spin(2e-4), case, random.Random(1)) is None
    assert not case.restore()


def test_what_compares_its_inputs_with_the_last_ones_is():
    case, last = kept(), {}

    def run():
        now = case.inputs["several"][0]
        spin(3e-4 if torch.equal(now, last.get("values", now[:0])) else 1.5e-3)
        last["values"] = now.clone()

    assert "times as long once the values of its inputs have changed" in repeated.slower_on_others(
        run, case, random.Random(1)
    )
    assert not case.restore(), "the inputs are put back"


@pytest.mark.gpu
@pytest.mark.parametrize("write", (Kept.restore, lambda case: case.vary(7)), ids=("restore", "vary"))
def test_what_is_put_back_is_there_for_every_stream(write):
    """Graphs are replayed on a stream of their own: v2_tensor_core was once called unstable over 8.6 GB of
    caches whose end was still being written."""
    values = torch.ones(1 << 28, device="cuda")
    case = Kept({"a": values}, {"a": values.clone()})
    values.add_(1)
    before = values[-1].item()
    other = torch.cuda.Stream()
    write(case)
    with torch.cuda.stream(other):
        seen = values[-1].clone()
    other.synchronize()
    assert seen.item() == values[-1].item() != before


def test_other_values_differ_in_order_and_sum_and_integers_stay():
    case = kept()
    case.vary(12345)
    a, before = case.inputs["a"], case.copies["a"]
    assert not torch.equal(a, before) and abs(float(a.sum() - before.sum())) > 1e-6
    assert torch.equal(case.inputs["count"], case.copies["count"])
    varied = a.clone()
    case.vary(12345)
    assert torch.equal(a, varied)
    assert case.restore() == ["a", "several[0]"]


class Values:
    """Inputs of which only that they change is simulated."""

    now = 0

    def vary(self, number):
        self.now = number


NOISE = {
    "none": lambda rng, ms: ms,
    "5 %": lambda rng, ms: ms * math.exp(rng.gauss(0, 0.05)),
    "30 %": lambda rng, ms: ms * math.exp(rng.gauss(0, 0.3)),
    "waits": lambda rng, ms: ms * rng.uniform(1, 1.1) + (rng.expovariate(0.01) if rng.random() < 0.6 else 0),
}
"""What a call of so many ms takes."""


def accused(seeds, slower, noise):
    """How often a callable is accused that takes 1 ms, ``slower`` times that where the values are not those
    of the call before."""
    found = 0
    for seed in range(seeds):
        rng, values, last = random.Random(seed), Values(), []

        def call(rng=rng, values=values, last=last):
            ms = 1.0 if last == [values.now] else slower
            last[:] = [values.now]
            return noise(rng, ms)

        found += repeated.judge(call, values, rng) is not None
    return found


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.0, 0.05, 1.0, 3.0])
def test_noise_accuses_nobody(spread):
    """Equal calls, of which each takes exp(spread × normal) and every tenth a hundred times as long."""
    found = 0
    for seed in range(1000):
        rng = random.Random(seed)
        found += repeated.judge(noisy(rng, spread), Values(), rng) is not None
    assert found == 0


def noisy(rng, spread):
    return lambda: 1e-3 * math.exp(rng.gauss(0, spread)) * (100 if spread and rng.random() < 0.1 else 1)


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISE)
def test_equal_calls_are_not_accused(noise):
    assert accused(1000, 1.0, NOISE[noise]) == 0


@pytest.mark.parametrize("noise", NOISE)
def test_three_times_as_long_is_found_under_noise(noise):
    assert accused(200, 3.0, NOISE[noise]) >= 0.99 * 200


def test_twice_as_long_is_found_where_most_calls_wait_for_others():
    assert accused(200, 2.0, NOISE["waits"]) >= 0.99 * 200
