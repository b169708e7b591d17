"""`python -m console.ui HOST`: the screen for whoever draws it elsewhere, such as a browser; whether there is a terminal is not asked."""

import sys

from console.ui.start import run_screen

if __name__ == "__main__":
    sys.exit(run_screen(sys.argv[1]))
