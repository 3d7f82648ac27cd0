"""Packs: the contents of a job's files, one zstd frame after the other, equal content once.

A file is one frame, or one per FRAME_SIZE bytes of it where it is larger, and its frames are contiguous: a file is
one range read, and a part of a large one is a range read of the frames that hold it.
"""

from __future__ import annotations

import hashlib
import io
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import BinaryIO, NamedTuple, Protocol

import zstandard
from traceflow_formats.errors import TraceflowError

from .backend import Backend
from .layout import pack_name
from .manifest import StoredObject

__all__ = ["FRAME_SIZE", "PACK_SIZE", "PackReader", "PackWriter", "Packed"]

FRAME_SIZE = 8 << 20
PACK_SIZE = 1 << 30  # a new pack begins when this is reached; a file never spans two
LEVEL = 3  # measured: better than gzip -6 by a quarter, and four times as fast


class Packed(NamedTuple):
    """Where a content lies: frames at `offset` for `length` bytes of a pack, `size` bytes when unpacked.

    `frames` are the lengths of the frames where there are several; each holds FRAME_SIZE bytes but the last.
    """

    sha256: str
    size: int
    pack: int
    offset: int
    length: int
    frames: tuple[int, ...] | None = None


class Readable(Protocol):
    """What `add` takes: anything with `read`."""

    def read(self, size: int = -1, /) -> bytes: ...


class PackWriter:
    """Writes the packs of one job below a folder. `create` opens an object by name, as `Backend.create` does."""

    def __init__(self, create: Callable[[str], AbstractContextManager[BinaryIO]], pack_size: int = PACK_SIZE) -> None:
        self._create = create
        self._pack_size = pack_size
        self._stack = ExitStack()
        self._stream: BinaryIO | None = None
        self._digest = hashlib.sha256()
        self._at = 0
        self._number = -1
        self._known = _Digests()  # numbers the contents
        self._places = array("q")  # four numbers for each content: size, pack, offset, length
        self._frames: dict[int, tuple[int, ...]] = {}
        self._compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
        self.objects: list[StoredObject] = []

    def add(self, stream: Readable) -> Packed:
        """Take in one content, read to its end in pieces; where it is known already, its place.

        When reading or writing fails nothing of it stays in the pack.
        """
        first = _read_full(stream, FRAME_SIZE)
        digest = hashlib.sha256(first)
        if len(first) < FRAME_SIZE:
            found = self._find(digest.digest())
            if found is not None:
                return found
        out = self._open()
        start, before = self._at, self._digest.copy()
        try:
            key, size, frames = self._write(out, first, digest, stream)
            found = self._find(key)
            if found is None:
                return self._remember(key, size, start, frames)
        except BaseException:
            self._take_back(out, start, before)
            raise
        self._take_back(out, start, before)  # a large one that was known
        return found

    def _write(
        self, out: BinaryIO, data: bytes, digest: hashlib._Hash, stream: Readable
    ) -> tuple[bytes, int, list[int]]:
        """Write frames until the stream ends; the digest of the content, its size, and the frames' lengths.

        `data` is the first part of the content and `digest` has it already.
        """
        frames: list[int] = []
        size = 0
        while data or not frames:
            if frames:
                digest.update(data)
            size += len(data)
            frame = self._compressor.compress(data)
            out.write(frame)
            self._digest.update(frame)
            self._at += len(frame)
            frames.append(len(frame))
            if len(data) < FRAME_SIZE:
                break
            data = _read_full(stream, FRAME_SIZE)
        return digest.digest(), size, frames

    def _find(self, key: bytes) -> Packed | None:
        number = self._known.find(key)
        if number is None:
            return None
        size, pack, offset, length = self._places[number * 4 : number * 4 + 4]
        return Packed(key.hex(), size, pack, offset, length, self._frames.get(number))

    def _remember(self, key: bytes, size: int, start: int, frames: list[int]) -> Packed:
        number = self._known.add(key)
        self._places.extend((size, self._number, start, self._at - start))
        if len(frames) > 1:
            self._frames[number] = tuple(frames)
        return Packed(key.hex(), size, self._number, start, self._at - start, self._frames.get(number))

    def _take_back(self, out: BinaryIO, start: int, before: hashlib._Hash) -> None:
        with suppress(OSError, ValueError):  # a failed disk ends the job in any case
            out.seek(start)
            out.truncate()
        self._at, self._digest = start, before

    def finish(self) -> list[StoredObject]:
        """Close the last pack and return all."""
        self._close()
        return self.objects

    def abort(self) -> None:
        """Drop the pack in hand."""
        if self._stream is not None:
            self._stream = None
            with suppress(_Aborted, OSError):
                self._stack.__exit__(_Aborted, _Aborted(), None)

    def _open(self) -> BinaryIO:
        if self._stream is not None and self._at >= self._pack_size:
            self._close()
        if self._stream is None:
            self._number += 1
            self._stack = ExitStack()
            self._stream = self._stack.enter_context(self._create(pack_name(self._number)))
            self._digest, self._at = hashlib.sha256(), 0
        return self._stream

    def _close(self) -> None:
        if self._stream is not None:
            self._stack.close()
            self._stream = None
            self.objects.append(StoredObject(pack_name(self._number), self._at, self._digest.hexdigest()))


class _Digests:
    """Digests of 32 bytes, numbered as they come: 40 to 48 bytes for each, as a job may have a million files."""

    def __init__(self) -> None:
        self._all = bytearray()
        self._slots = array("i", bytes(4 << 10))  # a table with open addressing: numbers from 1, 0 where it is free

    def find(self, digest: bytes) -> int | None:
        """The number of a digest that was added."""
        number = self._slots[self._place(digest)]
        return number - 1 if number else None

    def add(self, digest: bytes) -> int:
        """The number of a new digest."""
        self._all += digest
        count = len(self._all) // 32
        self._slots[self._place(digest)] = count
        if 3 * count > 2 * len(self._slots):
            self._slots = array("i", bytes(8 * len(self._slots)))
            for number in range(count):
                self._slots[self._place(bytes(self._all[32 * number : 32 * number + 32]))] = number + 1
        return count - 1

    def _place(self, digest: bytes) -> int:
        mask = len(self._slots) - 1
        place = hash(digest) & mask
        while (number := self._slots[place]) and self._all[32 * number - 32 : 32 * number] != digest:
            place = (place + 1) & mask
        return place


class _Aborted(Exception):
    """Ends a stream that is not to be kept."""


def _read_full(stream: Readable, size: int) -> bytes:
    """Exactly `size` bytes, fewer only at the end."""
    data = stream.read(size)
    if not data or len(data) == size:
        return data
    parts = [data]
    missing = size - len(data)
    while missing and (data := stream.read(missing)):
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


class PackReader:
    """Reads contents from the packs in one folder of a store."""

    def __init__(self, backend: Backend, folder: str) -> None:
        self._backend = backend
        self._folder = folder

    def open(self, packed: Packed, check: bool = True) -> BinaryIO:
        """The content as a stream, frame by frame. At its end the digest is compared, unless `check` is false.

        A read that meets other bytes than were stored raises TraceflowError store_corrupt.
        """
        return io.BufferedReader(_ContentStream(self._chunks(packed, check)), buffer_size=1 << 16)

    def read(self, packed: Packed) -> bytes:
        """The whole content, checked."""
        return b"".join(self._chunks(packed, check=True))

    def chunks(self, packed: Packed) -> Iterator[bytes]:
        """The content in pieces of at most FRAME_SIZE bytes; after the last one the digest is compared."""
        return self._chunks(packed, check=True)

    def read_range(self, packed: Packed, start: int, length: int) -> bytes:
        """Bytes `start` to `start + length` of the content; only frames that hold them are read."""
        end = min(packed.size, start + length)
        if start < 0 or length < 0 or start >= end:
            return b""
        frames = packed.frames or (packed.length,)
        first, last = start // FRAME_SIZE, (end - 1) // FRAME_SIZE
        if last >= len(frames):
            raise self._corrupt(packed, "it has fewer frames than its size asks for")
        offset = packed.offset + sum(frames[:first])
        parts = [self._frame(packed, offset, frames[first : last + 1], number) for number in range(last - first + 1)]
        data = b"".join(parts)
        skip = start - first * FRAME_SIZE
        return data[skip : skip + end - start]

    def _chunks(self, packed: Packed, check: bool) -> Iterator[bytes]:
        digest = hashlib.sha256()
        size = 0
        for number in range(len(packed.frames or (0,))):
            data = self._frame(packed, packed.offset, packed.frames or (packed.length,), number)
            digest.update(data)
            size += len(data)
            yield data
        if check and (digest.hexdigest() != packed.sha256 or size != packed.size):
            raise self._corrupt(packed, "its digest is another one")

    def _frame(self, packed: Packed, offset: int, frames: Sequence[int], number: int) -> bytes:
        at, length = offset + sum(frames[:number]), frames[number]
        try:
            frame = self._backend.read_range(f"{self._folder}/{pack_name(packed.pack)}", at, length)
            if len(frame) != length:
                raise self._corrupt(packed, "its pack is too short")
            params = zstandard.get_frame_parameters(frame)
            if params.content_size > FRAME_SIZE:
                raise self._corrupt(packed, "a frame is larger than frames are")
            return zstandard.ZstdDecompressor().decompress(frame)
        except FileNotFoundError:
            raise self._corrupt(packed, f"{pack_name(packed.pack)} is missing") from None
        except zstandard.ZstdError as error:
            raise self._corrupt(packed, re.sub(r"\s+", " ", str(error))) from None

    def _corrupt(self, packed: Packed, why: str) -> TraceflowError:
        return TraceflowError(
            "store_corrupt",
            f"the content {packed.sha256[:12]} in {self._folder}/{pack_name(packed.pack)} cannot be read: {why}; "
            "import the job again",
        )


class _ContentStream(io.RawIOBase):
    """Chunks as a readable stream."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = memoryview(chunk)
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count
