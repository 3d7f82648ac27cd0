"""The `traceflow` command. Nothing heavy is imported before it is known what is asked."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from traceflow.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
