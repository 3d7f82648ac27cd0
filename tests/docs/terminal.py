"""Commands run on a terminal: a real one of the system (a pty), of a fixed width, with nothing of the user's."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import struct
import subprocess
import termios
from pathlib import Path

COLUMNS = 100


def on_terminal(command: str, cwd: Path, path: Path, columns: int = COLUMNS) -> tuple[int, str]:
    """The exit code of a shell command and what it showed, stdout and stderr as they came, colours included.

    It runs in `cwd`, with the programs of `path` before the system's.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = {
        "PATH": f"{path}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(cwd),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONWARNINGS": "error",
        "NO_PROGRESS": "1",  # how far a bar came depends on the machine
    }
    running = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", command], stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=env
    )
    os.close(theirs)
    try:
        return _watched(running, ours)
    finally:
        os.close(ours)


def _watched(running: subprocess.Popen[bytes], terminal: int) -> tuple[int, str]:
    pieces = []
    while True:
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError as error:  # Linux says EIO when the last writer has gone
            if error.errno != errno.EIO:
                raise
            break
        if not piece:
            break
        pieces.append(piece)
    code = running.wait(timeout=300)
    return code, b"".join(pieces).decode().replace("\r\n", "\n")
