"""Archives made byte by byte, as no packer would make them."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

END = bytes(1024)


def header(
    name: bytes = b"j/a",
    size: int | bytes = 0,
    kind: bytes = b"0",
    *,
    mode: bytes = b"0000644\0",
    prefix: bytes = b"",
    link: bytes = b"",
    magic: bytes = b"ustar\x0000",
    checksum: int | None = None,
    signed: bool = False,
) -> bytes:
    """One tar header. A size given as bytes stands in the field as it is."""
    field = size if isinstance(size, bytes) else b"%011o\0" % size
    block = b"".join(
        (
            name.ljust(100, b"\0"),
            mode.ljust(8, b"\0"),
            b"0000000\0" * 2,
            field,
            b"00000000000\0",
            b" " * 8,
            kind,
            link.ljust(100, b"\0"),
            magic.ljust(8, b"\0"),
            bytes(80),
            prefix.ljust(167, b"\0"),
        )
    )
    assert len(block) == 512
    total = sum(block) if not signed else sum(b - 256 * (b > 127) for b in block)
    return block[:148] + b"%06o\0 " % (total if checksum is None else checksum) + block[156:]


def file(name: bytes, content: bytes = b"x", **more: object) -> bytes:
    return header(name, len(content), **more) + content + bytes(-len(content) % 512)  # type: ignore[arg-type]


def record(key: str, value: bytes | str) -> bytes:
    """One PAX record, its length right."""
    rest = b" " + key.encode() + b"=" + (value.encode() if isinstance(value, str) else value) + b"\n"
    length = len(rest) + 1
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return str(length).encode() + rest


def extended(payload: bytes, kind: bytes = b"x") -> bytes:
    return file(b"././@PaxHeader" if kind in b"xgX" else b"././@LongLink", payload, kind=kind)


def base256(value: int) -> bytes:
    """A size field in GNU's binary form; negative values too."""
    if value < 0:
        return value.to_bytes(12, "big", signed=True)
    return b"\x80" + value.to_bytes(11, "big")


def gz(data: bytes) -> bytes:
    return gzip.compress(data, 6, mtime=0)


@dataclass
class Zipped:
    """One zip member. Fields of the local header may differ from those of the directory."""

    name: bytes
    content: bytes = b"x"
    method: int = 8
    flags: int = 0x800
    mode: int = 0o100644
    maker: int = 3
    local_name: bytes | None = None
    local_method: int | None = None
    local_crc: int | None = None
    stated_size: int | None = None  # in both headers
    stated_crc: int | None = None
    offset: int | None = None
    extra: bytes = b""
    packed: bytes | None = None  # the data as it stands in the file


def zipped(members: list[Zipped], *, before: bytes = b"", after: bytes = b"", count: int | None = None) -> bytes:
    """A zip of members, with bytes before and behind it."""
    out = bytearray(before)
    directory = bytearray()
    for m in members:
        compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
        packed = m.packed
        if packed is None:
            packed = compressor.compress(m.content) + compressor.flush() if m.method == 8 else m.content
        crc = zlib.crc32(m.content) if m.stated_crc is None else m.stated_crc
        size = len(m.content) if m.stated_size is None else m.stated_size
        at = len(out) if m.offset is None else m.offset
        name = m.name if m.local_name is None else m.local_name
        method = m.method if m.local_method is None else m.local_method
        local_crc = crc if m.local_crc is None else m.local_crc
        if m.offset is None:
            out += struct.pack(
                "<4sHHHHHIIIHH", b"PK\3\4", 20, m.flags, method, 0, 0, local_crc, len(packed), size, len(name), 0
            )
            out += name + packed
        directory += struct.pack(
            "<4sHHHHHHIIIHHHHHII",
            b"PK\1\2",
            m.maker << 8 | 20,
            20,
            m.flags,
            m.method,
            0,
            0,
            crc,
            len(packed),
            size,
            len(m.name),
            len(m.extra),
            0,
            0,
            0,
            m.mode << 16,
            at,
        )
        directory += m.name + m.extra
    start = len(out)
    out += directory
    number = len(members) if count is None else count
    out += struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, number, number, len(directory), start, 0)
    return bytes(out + after)


def tree_of(root: Path) -> dict[str, tuple[str, int, bytes]]:
    """Everything below a folder: path -> (kind, permission bits, content); links are not followed."""
    return dict(_walk(root, root))


def _walk(root: Path, folder: Path) -> Iterator[tuple[str, tuple[str, int, bytes]]]:
    for path in sorted(folder.iterdir()):
        name = path.relative_to(root).as_posix()
        mode = path.lstat().st_mode & 0o7777
        if path.is_symlink():
            yield name, ("link", mode, b"")
        elif path.is_dir():
            yield name, ("folder", mode, b"")
            yield from _walk(root, path)
        else:
            yield name, ("file", mode, path.read_bytes() if path.is_file() else b"(special)")
