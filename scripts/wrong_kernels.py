"""Renew docs/wrong-kernels.md, the list of the kernels that the check has to catch."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "backend"))

from fusescope.measure.selfcheck import catching  # noqa: E402

if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(__doc__)
    (ROOT / "docs" / "wrong-kernels.md").write_text(catching.document())
