"""Runs the `thyme` command for `python -m thyme.cli`."""

import sys

from thyme.cli import main

sys.exit(main())
