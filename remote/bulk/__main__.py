"""The console's own end: `python -m remote.bulk send|receive ROOT PATH`, with nothing in its way that only a host has."""

import sys
from pathlib import Path

from remote.bulk.ends import run_end

if __name__ == "__main__":
    _, verb, root, path = sys.argv
    sys.exit(run_end(verb, Path(root), path, announce=False))
