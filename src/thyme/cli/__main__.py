"""Lets `python -m thyme.cli` be the `thyme` command."""

import sys

from thyme.cli import main

sys.exit(main())
