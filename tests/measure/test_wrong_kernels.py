"""The check itself: every wrong kernel is caught, by the tolerance and cases that real ones pass. ``fusescope
selfcheck --seeds 100`` does the same on many inputs."""

import pytest

from fusescope.core.paths import ROOT
from fusescope.measure.selfcheck import catching


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(catching.kinds()), ids=lambda k: f"{k.name}-{k.op}-{k.dtype}")
def test_every_wrong_kernel_is_caught(kind):
    assert catching.caught(kind, "cpu", seed=1)


def test_there_are_forty_kinds_each_with_one_sentence():
    assert len(catching.names()) >= 40
    for name in catching.names():
        text = catching.load(name).__doc__.strip()
        assert text.endswith(".") and "\n" not in text, name


def test_the_list_in_the_documents_is_complete():
    assert (ROOT / "docs" / "wrong-kernels.md").read_text() == catching.document(), (
        "run python3 scripts/wrong_kernels.py"
    )
