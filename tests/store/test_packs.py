"""Contents go into packs once each and come back byte for byte, whole or in part, or not at all."""

from __future__ import annotations

import hashlib
import io
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traceflow_formats.errors import TraceflowError

from traceflow.store.local import LocalBackend
from traceflow.store.packs import FRAME_SIZE, Packed, PackReader, PackWriter

LARGE = random.Random(7).randbytes(FRAME_SIZE * 2 + 12_345)


class Slow(io.BytesIO):
    """Gives less than it is asked for, as a pipe does."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 0, 1_000_003))


def pack(root: Path, contents: list[bytes], pack_size: int = 1 << 30) -> tuple[PackReader, list[Packed], PackWriter]:
    backend = LocalBackend(root)
    writer = PackWriter(lambda name: backend.create(f"r/{name}"), pack_size)
    packed = [writer.add(Slow(data)) for data in contents]
    writer.finish()
    return PackReader(backend, "r"), packed, writer


@pytest.mark.parametrize(
    "contents",
    [
        [b""],
        [b"a", b"", b"b" * 1000],
        [LARGE],
        [b"x" * FRAME_SIZE],
        [b"x" * (FRAME_SIZE - 1), b"x" * FRAME_SIZE, b"x" * (FRAME_SIZE + 1)],
        [b"before", LARGE, b"after"],
    ],
)
def test_contents_come_back(tmp_path: Path, contents: list[bytes]) -> None:
    reader, packed, _ = pack(tmp_path, contents)
    for data, place in zip(contents, packed, strict=True):
        assert (place.size, place.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        assert reader.read(place) == data
        with reader.open(place) as stream:
            assert b"".join(iter(lambda: stream.read(100_000), b"")) == data


def test_equal_content_is_stored_once_also_when_it_is_large(tmp_path: Path) -> None:
    contents = [b"small", LARGE, b"small", LARGE, b"tail", LARGE]
    reader, packed, writer = pack(tmp_path, contents)
    assert packed[0] == packed[2]
    assert packed[1] == packed[3] == packed[5]
    assert [reader.read(place) for place in packed] == contents
    stored = (tmp_path / "r" / "pack-0000.bin").read_bytes()
    assert len(stored) < len(LARGE) * 1.01
    assert writer.objects[0].size == len(stored)
    assert writer.objects[0].sha256 == hashlib.sha256(stored).hexdigest()


def test_a_pack_that_is_full_is_followed_by_another(tmp_path: Path) -> None:
    contents = [random.Random(n).randbytes(50_000) for n in range(6)]
    reader, packed, writer = pack(tmp_path, contents, pack_size=100_000)
    assert [place.pack for place in packed] == [0, 0, 1, 1, 2, 2]
    assert [o.name for o in writer.objects] == ["pack-0000.bin", "pack-0001.bin", "pack-0002.bin"]
    assert [reader.read(place) for place in packed] == contents


def test_no_files_make_no_pack(tmp_path: Path) -> None:
    _, _, writer = pack(tmp_path, [])
    assert writer.objects == []


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[PackReader, Packed]:
    reader, packed, _ = pack(tmp_path_factory.mktemp("large"), [b"first", LARGE])
    return reader, packed[1]


EDGES = st.sampled_from([0, 1, FRAME_SIZE - 1, FRAME_SIZE, FRAME_SIZE + 1, 2 * FRAME_SIZE, len(LARGE) - 1, len(LARGE)])


@settings(max_examples=40, deadline=None)
@given(start=EDGES | st.integers(0, len(LARGE) + 10), length=EDGES | st.integers(0, len(LARGE)))
def test_any_range_is_the_bytes_of_that_range(large: tuple[PackReader, Packed], start: int, length: int) -> None:
    reader, packed = large
    assert reader.read_range(packed, start, length) == LARGE[start : start + length]


def test_a_file_whose_reading_fails_leaves_nothing_in_the_pack(tmp_path: Path) -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > FRAME_SIZE:
                raise RuntimeError("on purpose")
            return super().read(size)

    backend = LocalBackend(tmp_path)
    writer = PackWriter(lambda name: backend.create(f"r/{name}"))
    first = writer.add(io.BytesIO(b"first"))
    with pytest.raises(RuntimeError):
        writer.add(Failing(LARGE))
    last = writer.add(io.BytesIO(b"last"))
    writer.finish()
    assert last.offset == first.length
    reader = PackReader(backend, "r")
    assert (reader.read(first), reader.read(last)) == (b"first", b"last")


@pytest.mark.parametrize("change", ["flip", "cut", "missing", "other"])
def test_damage_is_an_error_and_never_other_bytes(tmp_path: Path, change: str) -> None:
    reader, packed, _ = pack(tmp_path, [b"hello " * 1000, b"other " * 1000])
    path = tmp_path / "r" / "pack-0000.bin"
    data = bytearray(path.read_bytes())
    place = packed[0]
    if change == "flip":
        data[place.offset + place.length // 2] ^= 0x10
        path.write_bytes(data)
    elif change == "cut":
        path.write_bytes(data[: place.length // 2])
    elif change == "missing":
        path.unlink()
    else:  # a row that points to another content
        place = Packed(place.sha256, place.size, 0, packed[1].offset, packed[1].length)
    with pytest.raises(TraceflowError) as caught:
        reader.read(place)
    assert caught.value.code == "store_corrupt"
