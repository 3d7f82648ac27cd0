"""The `traceflow` command. Nothing heavy is imported before it is known what is asked."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from traceflow.cli import run

    code = run(sys.argv[1:])
    if "traceflow.cli.app" not in sys.modules:
        # what reads its own command line: all is printed, nothing is open, and to take the interpreter down costs 4 ms
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
