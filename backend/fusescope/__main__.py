"""``python -m fusescope VERB``: the command line (backend/fusescope/cli)."""

import sys

from fusescope.cli import main

if __name__ == "__main__":
    sys.exit(main())
