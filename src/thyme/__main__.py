"""Runs the command line: `python -m thyme`, or as the application of `spark-submit`."""

import sys

from thyme.cli import main

if __name__ == "__main__":
    sys.exit(main())
