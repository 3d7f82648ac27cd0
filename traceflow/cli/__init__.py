"""The command line: data on stdout, progress and messages on stderr, exit 0 done, 1 refused or nothing found, 2 usage.

`run` is the one place where an exception becomes a line and an exit code. Command modules import what they
need inside their functions, so that `--help` costs little.
"""

from __future__ import annotations

import os
import sys

from traceflow_formats.errors import TraceflowError

from traceflow.collecting import CollectingSeldom

__all__ = ["run"]

# commands that read their own command line, and where they are; grep and search are such as well
_OWN = {("export",): "export", ("trial", "files"): "trialfiles", ("trial", "logs"): "trialfiles"}
_INTERRUPT_CODE = 130
_INTERRUPTED = "interrupted; nothing half done is left behind"


def run(argv: list[str]) -> int:
    """Run one command line and return the exit code."""
    from . import output

    try:
        with CollectingSeldom():
            result = _command(argv)
        sys.stdout.flush()
        if result == _INTERRUPT_CODE:  # what the option parser makes of an interrupt
            output.note(_INTERRUPTED)
        return result if isinstance(result, int) else 0
    except TraceflowError as error:
        output.print_error(error, as_json="--json" in argv)
        return 1
    except KeyboardInterrupt:
        output.note(_INTERRUPTED)
        return _INTERRUPT_CODE
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # the option parser's own answer to a reader that has gone
            return _reader_gone()
        raise
    except BrokenPipeError:
        return _reader_gone()
    except OSError as error:
        output.print_error(output.os_error(error), as_json="--json" in argv)
        _no_more_stdout()
        return 1
    except Exception as error:
        if isinstance(error, RuntimeError) and str(error) == "Query interrupted":  # what DuckDB makes of an interrupt
            output.note(_INTERRUPTED)
            return _INTERRUPT_CODE
        code = _usage(error)
        if code is None:
            raise
        return code


def _reader_gone() -> int:
    """`| head` has read enough: nothing went wrong, and there is nobody to tell."""
    _no_more_stdout()
    return 0


def _no_more_stdout() -> None:
    """Let what is still to be printed go nowhere, so that the end of the process is no second error."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _command(argv: list[str]) -> object:
    if argv in (["--version"], ["-V"]):
        from traceflow import __version__

        print(f"traceflow {__version__}")  # noqa: T201
        return 0
    if argv[:1] == ["--store"] and argv[2:3] in (["grep"], ["search"]):
        argv = [argv[2], *argv[:2], *argv[3:]]  # these read their own command line
    if argv[:1] == ["grep"]:
        from .grep import grep

        return grep(argv[1:])
    import signal  # which takes longer than all that it spares grep, that leaves nothing half done

    signal.signal(signal.SIGTERM, _terminate)
    if argv[:1] == ["search"]:
        from .search import search

        return search(argv[1:])
    words = argv[2:] if argv[:1] == ["--store"] else argv
    for path, module in _OWN.items():
        if tuple(words[: len(path)]) == path:
            from importlib import import_module

            if words is not argv:
                os.environ["TRACEFLOW_STORE"] = argv[1]  # the command's own option stands above it
            return getattr(import_module(f".{module}", __name__), path[-1])(words[len(path) :])
    from .app import app

    return app(argv, standalone_mode=False, prog_name="traceflow")


def _terminate(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _usage(error: Exception) -> int | None:
    """The exit code of an error of the option parser, after showing it; None for any other exception."""
    show, code = getattr(error, "show", None), getattr(error, "exit_code", None)
    if callable(show) and isinstance(code, int):
        show()
        return code
    if type(error).__name__ == "Exit" and isinstance(code, int):
        return code
    if type(error).__name__ == "Abort":
        return 130
    return None
