"""The bytes inside a compressed file, read in bounded pieces, with a bound on how many there may be.

Every stream reports truncated and corrupt input as `invalid_archive`, and never asks a decompressor for more than
a megabyte at a time, so that a bomb costs time in proportion to the bound and no memory.
"""

from __future__ import annotations

import io
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, cast

from traceflow_formats.errors import TraceflowError

from ..limits import Limits, format_size

__all__ = ["PIECE", "ByteStream", "Progress", "archive_format", "corrupt", "open_archive", "open_stream"]

PIECE = 1 << 20  # what is decompressed at once
_FEED = 1 << 14  # what a decompressor is fed at once; what it does not use it copies
_HEADER_ALLOWANCE = 2048  # unpacked bytes of a tar beside its files' bytes, per member
_ZSTD_WINDOW = 64 << 20  # memory that a frame may ask for; zstd -19 needs 8 MiB, -22 needs 128 MiB
_ZSTD_MARK = b"\xa5" * 4096  # compresses to a few other bytes, so it never comes out of a cut frame

Progress = Callable[[int, int], None]  # bytes of the archive read so far, and in all


def corrupt(problem: str, **details: object) -> TraceflowError:
    """The refusal of an archive as a whole."""
    return TraceflowError("invalid_archive", f"{problem}: get the archive again, or pack it anew", **details)


@contextmanager
def open_archive(source: str | os.PathLike[str] | BinaryIO, limits: Limits) -> Iterator[tuple[BinaryIO, int]]:
    """The archive as a seekable file at its beginning, and its size.

    Raises `invalid_input` for what is no regular file (a FIFO is never opened for reading, so nothing blocks),
    `not_found`, `io_error`, and `upload_too_large` over `archive_bytes`.
    """
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise TraceflowError("invalid_input", f"{path} is no file", path=str(path))
            file: BinaryIO = path.open("rb")
        except (FileNotFoundError, NotADirectoryError):
            raise TraceflowError("not_found", f"{path}: no such file", path=str(path)) from None
        except OSError as error:
            raise TraceflowError("io_error", f"{path}: {error.strerror}", path=str(path)) from None
        with file:
            yield file, _checked_size(file, limits)
    else:
        yield source, _checked_size(source, limits)


def _checked_size(file: BinaryIO, limits: Limits) -> int:
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if size > limits.archive_bytes:
        raise TraceflowError(
            "upload_too_large",
            f"the archive has {size} bytes, the limit `archive_bytes` is {limits.archive_bytes}: split the job, or"
            " raise the limit",
            limit="archive_bytes",
            value=limits.archive_bytes,
            bytes=size,
        )
    return size


def archive_format(head: bytes) -> str:
    """What the first 512 bytes of a file say it is: "tar", "tar.gz", "tar.zst" or "zip".

    Names are not looked at. Raises `invalid_archive` for anything else, naming what was recognised.
    """
    if head[:2] == b"\x1f\x8b":
        return "tar.gz"
    if head[:4] == b"\x28\xb5\x2f\xfd" or (head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F):
        return "tar.zst"
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return "zip"
    if len(head) == 512 and (head[257:262] == b"ustar" or not any(head) or _old_tar(head)):
        return "tar"
    for magic, name in _OTHERS:
        if head.startswith(magic):
            raise TraceflowError(
                "invalid_archive", f"{name} is not read: pack the job as .tar.gz, .tar.zst, .tar or .zip", seen=name
            )
    what = "the file is empty" if not head else "the file is no archive"
    raise TraceflowError("invalid_archive", f"{what}: a .tar.gz, .tar.zst, .tar or .zip is expected")


_OTHERS = (
    (b"\xfd7zXZ\0", "an xz archive"),
    (b"BZh", "a bzip2 archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!", "a RAR archive"),
    (b"\x04\x22\x4d\x18", "an lz4 archive"),
    (b"PK\x07\x08", "a multi-part zip archive"),
)


def _old_tar(head: bytes) -> bool:
    """A header from before POSIX has no magic; its checksum is the only mark."""
    field = head[148:156].strip(b" \0")
    return (
        bool(field) and all(b in b"01234567" for b in field) and int(field, 8) == 256 + sum(head) - sum(head[148:156])
    )


class ByteStream:
    """A stream of unpacked bytes. `position` is what was read of it, `trailing` what followed the data (see gzip)."""

    whole = True  # the end of the stream proves that nothing is missing

    def __init__(self, file: BinaryIO, size: int, limits: Limits, progress: Progress | None) -> None:
        self._file = file
        self._size = size
        self._progress = progress
        self._buffer = b""
        self._at = 0
        self._produced = 0
        self._limits = limits
        self._cap, self._cap_name = limits.unpacked_allowed(size)
        self._cap += limits.members * _HEADER_ALLOWANCE
        self.position = 0
        self.trailing = 0

    def _fill(self) -> bytes:
        """Up to PIECE further bytes; b"" at the end."""
        raise NotImplementedError

    def read(self, most: int) -> bytes:
        """Some bytes, at most so many; b"" at the end of the stream."""
        if self._at == len(self._buffer):
            self._buffer = self._fill()
            self._at = 0
            self._produced += len(self._buffer)
            if self._produced > self._cap:
                raise TraceflowError(
                    "upload_too_large",
                    f"the archive of {format_size(self._size)} unpacks to over {format_size(self._cap)}: split the"
                    f" job, or raise the limit `{self._cap_name}`",
                    limit=self._cap_name,
                    value=getattr(self._limits, self._cap_name),
                )
        piece = self._buffer[self._at : self._at + most]
        self._at += len(piece)
        self.position += len(piece)
        return piece

    def read_up_to(self, count: int) -> bytes:
        """So many bytes; fewer only at the end of the stream."""
        piece = self.read(count)
        if len(piece) == count or not piece:
            return piece
        pieces = [piece]
        missing = count - len(piece)
        while missing and (piece := self.read(missing)):
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def skip(self, count: int) -> int:
        """Pass over bytes; how many are missing at the end of the stream (0: none)."""
        while count and (piece := self.read(min(count, PIECE))):
            count -= len(piece)
        return count

    def _raw(self, most: int) -> bytes:
        piece = self._file.read(most)
        if self._progress is not None:
            self._progress(self._file.tell(), self._size)
        return piece


class _Plain(ByteStream):
    whole = False

    def _fill(self) -> bytes:
        return self._raw(PIECE)

    def skip(self, count: int) -> int:
        buffered = min(count, len(self._buffer) - self._at)
        self._at += buffered
        self.position += buffered
        count -= buffered
        if not count:
            return 0
        passed = min(count, self._size - self._file.tell())
        self._file.seek(passed, io.SEEK_CUR)
        self.position += passed
        return count - passed


class _Gzip(ByteStream):
    """gzip members one after another, as the standard allows. What follows them counts as `trailing`, unless zero."""

    def __init__(self, file: BinaryIO, size: int, limits: Limits, progress: Progress | None) -> None:
        super().__init__(file, size, limits, progress)
        self._input = b""
        self._input_at = 0
        self._inflate = zlib.decompressobj(31)
        self._between = False  # between members: the next byte starts one, or is no gzip
        self._pending = b""  # fed and not yet used

    def _next_input(self) -> bytes:
        if self._input_at == len(self._input):
            self._input = self._raw(1 << 18)
            self._input_at = 0
        piece = self._input[self._input_at : self._input_at + _FEED]
        self._input_at += len(piece)
        return piece

    def _fill(self) -> bytes:
        pieces: list[bytes] = []
        room = PIECE
        while room:
            self._pending = self._pending or self._next_input()
            if not self._pending:
                if not self._between:
                    raise corrupt(f"the gzip data is cut off at byte {self._size}", reason="truncated")
                break
            if self._between and not self._start_member():
                break
            try:
                piece = self._inflate.decompress(self._pending, room)
            except zlib.error as error:
                raise corrupt(f"the gzip data is damaged before byte {self._file.tell()} ({error})") from None
            pieces.append(piece)
            room -= len(piece)
            self._pending = self._inflate.unconsumed_tail
            if self._inflate.eof:
                self._pending = self._inflate.unused_data
                self._between = True
        return b"".join(pieces)

    def _start_member(self) -> bool:
        """Begin the next member; False when what follows is none (all of it is then passed over)."""
        if len(self._pending) < 2:
            self._pending += self._next_input()
        if self._pending[:2] == b"\x1f\x8b":
            self._inflate = zlib.decompressobj(31)
            self._between = False
            return True
        while self._pending:
            self.trailing += len(self._pending) - self._pending.count(0)
            self._pending = self._next_input()
        return False


class _Zstd(ByteStream):
    """zstd frames one after another.

    The library takes a cut frame for the end of the data. So a frame of ours is put behind the file: only when
    its content comes out at the end was the last frame of the file whole.
    """

    def __init__(self, file: BinaryIO, size: int, limits: Limits, progress: Progress | None) -> None:
        super().__init__(file, size, limits, progress)
        import zstandard

        self._failure = zstandard.ZstdError
        self._mark = zstandard.ZstdCompressor().compress(_ZSTD_MARK)
        self._held = b""
        self._ended = False
        unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        source = cast(IO[bytes], _Fed(self._feed))
        self._reader = unpacker.stream_reader(source, read_size=1 << 17, read_across_frames=True)

    def _feed(self, most: int) -> bytes:
        piece = self._raw(most)
        if not piece and self._mark:
            piece, self._mark = self._mark, b""
        return piece

    def _fill(self) -> bytes:
        while not self._ended:
            try:
                piece = self._reader.read(PIECE)
            except self._failure as error:
                message = str(error)
                if "memory" in message or "window" in message.lower():
                    raise corrupt(
                        f"the zstd data needs a window of over {_ZSTD_WINDOW >> 20} MiB; compress it without --ultra"
                        " and --long"
                    ) from None
                raise corrupt(f"the zstd data is damaged before byte {self._file.tell()} ({message})") from None
            if not piece:
                self._ended = True
                if self._held != _ZSTD_MARK:
                    raise corrupt(f"the zstd data is cut off at byte {self._size}", reason="truncated")
                return b""
            piece = self._held + piece
            self._held = piece[-len(_ZSTD_MARK) :]
            if piece := piece[: -len(_ZSTD_MARK)]:
                return piece
        return b""


class _Fed(io.RawIOBase):
    """A function as a readable file."""

    def __init__(self, feed: Callable[[int], bytes]) -> None:
        self._feed = feed

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._feed(size)


def open_stream(kind: str, file: BinaryIO, size: int, limits: Limits, progress: Progress | None = None) -> ByteStream:
    """The tar inside an archive of this format (not zip); the file stands at its beginning."""
    return {"tar": _Plain, "tar.gz": _Gzip, "tar.zst": _Zstd}[kind](file, size, limits, progress)
