"""`python -m console.embedded DIRECTORY` runs the embedded host's SSH server."""

import sys

from console.embedded.server import main

sys.exit(main(sys.argv[1:]))
