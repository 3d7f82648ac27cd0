"""Hostile archives are refused by code and reason; nothing outside changes and nothing is left."""

from __future__ import annotations

import io
import zlib
from pathlib import Path

import pytest
import zstandard
from archive_bytes import END, Zipped, base256, extended, file, gz, header, record, tree_of, zipped
from traceflow_formats.errors import TraceflowError

from traceflow.archive import scan, unpack
from traceflow.limits import Limits

CASES = Path(__file__).parents[2] / "fixtures" / "cases"
GOOD = file(b"j/result.json", b"{}") + file(b"j/config.json", b"{}")
PLAIN = header(b"j/a", 3) + b"abc".ljust(512, b"\0") + END
LIMITS = Limits(
    unpacked_bytes=1 << 20,
    members=50,
    file_bytes=1 << 19,
    ratio=20,
    ratio_free_bytes=1 << 19,
    path_bytes=300,
    path_depth=10,
    header_bytes=1000,
)


def tar(*blocks: bytes) -> bytes:
    """A good job in front, then the blocks, then the end."""
    return gz(GOOD + b"".join(blocks) + END)


def named(name: bytes) -> bytes:
    return tar(file(name))


def paxed(payload: bytes) -> bytes:
    return tar(extended(payload), file(b"j/a"))


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    return compressor.compress(data) + compressor.flush()


# name -> (archive, code, details["reason"] or details["limit"])
TABLE: dict[str, tuple[bytes, str, str | None]] = {
    # names
    "absolute": (named(b"/tmp/evil"), "invalid_archive", "path_traversal"),
    "absolute_twice": (named(b"//tmp/evil"), "invalid_archive", "path_traversal"),
    "parent": (named(b"../evil"), "invalid_archive", "path_traversal"),
    "parent_inside": (named(b"j/../../evil"), "invalid_archive", "path_traversal"),
    "parent_that_stays_inside": (named(b"j/x/../evil"), "invalid_archive", "path_traversal"),
    "parent_at_end": (tar(header(b"j/..", kind=b"5")), "invalid_archive", "path_traversal"),
    "backslash_parent": (named(b"j\\..\\..\\evil"), "invalid_archive", "path_traversal"),
    "mixed_slashes": (named(b"j/a\\../b"), "invalid_archive", "path_traversal"),
    "backslash_root": (named(b"\\evil"), "invalid_archive", "path_traversal"),
    "unc": (named(b"\\\\host\\share\\evil"), "invalid_archive", "path_traversal"),
    "drive": (named(b"C:\\evil"), "invalid_archive", "path_traversal"),
    "drive_relative": (named(b"c:evil"), "invalid_archive", "path_traversal"),
    "parent_by_prefix": (tar(file(b"evil", prefix=b"j/../..")), "invalid_archive", "path_traversal"),
    "parent_by_pax": (paxed(record("path", "../evil")), "invalid_archive", "path_traversal"),
    "parent_by_long_name": (tar(extended(b"../evil\0", b"L"), file(b"j/a")), "invalid_archive", "path_traversal"),
    "empty": (named(b""), "invalid_archive", "bad_name"),
    "dot_as_file": (named(b"."), "invalid_archive", "bad_name"),
    "nul_in_name": (named(b"j/a\0b.txt"), "invalid_archive", "bad_name"),
    "nul_in_pax_path": (paxed(record("path", b"j/ok\0/../../evil")), "invalid_archive", "bad_name"),
    "nul_in_long_name": (tar(extended(b"j/ok\0evil\0", b"L"), file(b"j/a")), "invalid_archive", "bad_name"),
    "not_utf8": (named(b"j/caf\xe9"), "invalid_archive", "bad_name"),
    "surrogate_utf8": (named(b"j/\xed\xa0\x80"), "invalid_archive", "bad_name"),
    "component_too_long": (paxed(record("path", "j/" + "n" * 256)), "invalid_archive", "bad_name"),
    "path_too_long": (paxed(record("path", "j/" + "nnnn/" * 60 + "x")), "invalid_archive", "bad_name"),
    "too_deep": (named(b"d/" * 11 + b"x"), "invalid_archive", "bad_name"),
    "file_with_slash": (tar(header(b"j/a/", 0)), "invalid_archive", "bad_name"),
    # types
    "symlink_out": (tar(header(b"j/out", kind=b"2", link=b"/tmp")), "invalid_archive", "link"),
    "symlink_inside": (tar(header(b"j/l", kind=b"2", link=b"result.json")), "invalid_archive", "link"),
    "symlink_then_file": (
        tar(header(b"j/up", kind=b"2", link=b"../.."), file(b"j/up/evil")),
        "invalid_archive",
        "link",
    ),
    "hardlink": (tar(header(b"j/h", kind=b"1", link=b"j/result.json")), "invalid_archive", "link"),
    "hardlink_with_content": (tar(file(b"j/h", b"x", kind=b"1", link=b"../v")), "invalid_archive", "link"),
    "character_device": (tar(header(b"j/null", kind=b"3")), "invalid_archive", "special_file"),
    "block_device": (tar(header(b"j/sda", kind=b"4")), "invalid_archive", "special_file"),
    "fifo": (tar(header(b"j/pipe", kind=b"6")), "invalid_archive", "special_file"),
    "gnu_sparse": (tar(header(b"j/s", kind=b"S", magic=b"ustar  ")), "invalid_archive", "sparse"),
    "pax_sparse": (paxed(record("GNU.sparse.major", "1")), "invalid_archive", "sparse"),
    "multi_volume": (tar(header(b"j/m", kind=b"M")), "invalid_archive", "bad_type"),
    "backup_folder": (tar(file(b"j/d", kind=b"D")), "invalid_archive", "bad_type"),
    "unknown_type": (tar(file(b"j/q", kind=b"Q")), "invalid_archive", "bad_type"),
    "folder_with_content": (tar(file(b"j/d", b"hidden", kind=b"5")), "invalid_archive", "bad_header"),
    # the same name twice
    "twice": (tar(file(b"j/a"), file(b"j/a")), "invalid_archive", "duplicate_member"),
    "twice_by_dot": (tar(file(b"j/a"), file(b"./j//a")), "invalid_archive", "duplicate_member"),
    "file_as_folder": (tar(file(b"j/a"), file(b"j/a/b")), "invalid_archive", "duplicate_member"),
    "folder_as_file": (tar(file(b"j/a/b"), file(b"j/a")), "invalid_archive", "duplicate_member"),
    "file_as_named_folder": (tar(file(b"j/a"), header(b"j/a/", kind=b"5")), "invalid_archive", "duplicate_member"),
    # headers
    "negative_size": (tar(header(b"j/x", base256(-512))), "invalid_archive", "bad_header"),
    "endless_size": (tar(header(b"j/x", base256(1 << 80))), "invalid_archive", "bad_header"),
    "size_no_octal": (tar(header(b"j/x", b"-0000000001\0")), "invalid_archive", "bad_header"),
    "size_with_junk": (tar(header(b"j/x", b"0000000001x\0")), "invalid_archive", "bad_header"),
    "mode_no_octal": (tar(header(b"j/x", mode=b"99999\0")), "invalid_archive", "bad_header"),
    "wrong_checksum": (tar(header(b"j/x", checksum=1)), "invalid_archive", "bad_header"),
    "lying_size": (gz(GOOD + header(b"j/x", 1 << 17) + b"{}"), "invalid_archive", "truncated"),
    "pax_negative_size": (paxed(record("size", "-1")), "invalid_archive", None),
    "pax_huge_size": (paxed(record("size", "9" * 19)), "invalid_archive", None),
    "pax_size_with_underscore": (paxed(record("size", "1_0")), "invalid_archive", None),
    "pax_empty_path": (paxed(record("path", "")), "invalid_archive", "pax"),
    "pax_path_twice": (paxed(record("path", "j/b") + record("path", "j/c")), "invalid_archive", "pax"),
    "pax_no_length": (paxed(b"path=j/b\n"), "invalid_archive", "pax"),
    "pax_length_too_long": (paxed(b"99 path=j/b\n"), "invalid_archive", "pax"),
    "pax_length_too_short": (paxed(b"5 path=j/b\n"), "invalid_archive", "pax"),
    "pax_length_zero": (paxed(b"0 path=j/b\n"), "invalid_archive", "pax"),
    "pax_length_huge": (paxed(b"9" * 900 + b" path=j/b\n"), "invalid_archive", "pax"),
    "pax_no_equals": (paxed(b"8 pathx\n"), "invalid_archive", "pax"),
    "pax_twice": (
        tar(extended(record("path", "j/b")), extended(record("path", "j/c")), file(b"j/a")),
        "invalid_archive",
        "pax",
    ),
    "pax_and_long_name": (
        tar(extended(record("path", "j/b")), extended(b"j/c\0", b"L"), file(b"j/a")),
        "invalid_archive",
        "pax",
    ),
    "pax_before_nothing": (tar(extended(record("path", "j/b"))), "invalid_archive", "bad_header"),
    "pax_before_symlink": (
        tar(extended(record("path", "j/b")), header(b"j/a", kind=b"2", link=b"/")),
        "invalid_archive",
        "link",
    ),
    "global_rename": (tar(extended(record("path", "j/b"), b"g"), file(b"j/a")), "invalid_archive", "pax"),
    "global_resize": (tar(extended(record("size", "1"), b"g"), file(b"j/a")), "invalid_archive", "pax"),
    "pax_bomb": (paxed(record("comment", "x" * 2000)), "invalid_archive", "header_bytes"),
    "long_name_bomb": (tar(extended(b"j/" + b"x" * 2000, b"L")), "invalid_archive", "header_bytes"),
    "long_name_size_only": (tar(header(b"x", base256(1 << 33), b"L")), "invalid_archive", "header_bytes"),
    "long_link_bomb": (tar(extended(b"x" * 2000, b"K")), "invalid_archive", "header_bytes"),
    "endless_global_headers": (tar(*[extended(record("comment", "x"), b"g")] * 300), "upload_too_large", "members"),
    # damage
    "cut_in_member": (gz(GOOD + header(b"j/x", 9000) + bytes(600)), "invalid_archive", "truncated"),
    "cut_in_header": (gz(GOOD + header(b"j/x")[:300]), "invalid_archive", "truncated"),
    "cut_in_padding": (gz(GOOD + header(b"j/x", 5) + b"12345"), "invalid_archive", "truncated"),
    "cut_in_pax": (gz(GOOD + header(b"x", 600, b"x") + bytes(512)), "invalid_archive", "truncated"),
    "plain_without_end": (GOOD, "invalid_archive", "truncated"),
    "plain_cut": (GOOD + header(b"j/x", 9000) + bytes(600), "invalid_archive", "truncated"),
    "gzip_cut": (tar()[:-20], "invalid_archive", "truncated"),
    "gzip_cut_in_trailer": (tar()[:-1], "invalid_archive", "truncated"),
    "gzip_header_only": (tar()[:10], "invalid_archive", "truncated"),
    "gzip_crc": (tar()[:-8] + bytes(8), "invalid_archive", None),
    "gzip_damaged": (tar()[:30] + b"\xff" * 20 + tar()[50:], "invalid_archive", None),
    "gzip_bad_second_member": (gz(GOOD) + gz(END)[:-8] + bytes(8), "invalid_archive", None),
    "zstd_cut": (zstd(GOOD + END)[:-3], "invalid_archive", None),
    "zstd_damaged": (zstd(GOOD + END)[:20] + b"\xff" * 30, "invalid_archive", None),
    "zstd_traversal": (zstd(GOOD + file(b"../evil") + END), "invalid_archive", "path_traversal"),
    "nothing": (b"", "invalid_archive", None),
    "no_archive": (b"hello" * 200, "invalid_archive", None),
    "gzip_of_text": (gz(b"hello" * 200), "invalid_archive", "bad_header"),
    "xz": (b"\xfd7zXZ\0" + bytes(600), "invalid_archive", None),
    "bzip2": (b"BZh9" + bytes(600), "invalid_archive", None),
    # too much
    "too_many": (tar(*[header(b"j/%d" % i) for i in range(60)]), "upload_too_large", "members"),
    "too_many_folders": (tar(*[header(b"j/", kind=b"5")] * 60), "upload_too_large", "members"),
    "too_many_implied": (tar(*[file(b"j/%d/a/b/c/d/x" % i) for i in range(12)]), "upload_too_large", "members"),
    "too_big_together": (
        tar(*[header(b"j/%d" % i, 400_000) + bytes(400_384) for i in range(3)]),
        "upload_too_large",
        "ratio",
    ),
    "tebibyte": (gz(GOOD + header(b"j/x", base256(1 << 40)) + b"{}"), "upload_too_large", "ratio"),
    "bomb_behind_the_end": (gz(GOOD + END + bytes(2 << 20)), "upload_too_large", "ratio"),
    "zstd_bomb_behind_the_end": (zstd(GOOD + END + bytes(9 << 20)), "upload_too_large", "ratio"),
    # zip
    "zip_parent": (zipped([Zipped(b"j/../../evil")]), "invalid_archive", "path_traversal"),
    "zip_absolute": (zipped([Zipped(b"/evil")]), "invalid_archive", "path_traversal"),
    "zip_symlink": (zipped([Zipped(b"j/l", b"/etc", mode=0o120777)]), "invalid_archive", "link"),
    "zip_fifo": (zipped([Zipped(b"j/p", b"", mode=0o010644)]), "invalid_archive", "special_file"),
    "zip_encrypted": (zipped([Zipped(b"j/a", flags=0x801)]), "invalid_archive", "encrypted"),
    "zip_other_local_name": (zipped([Zipped(b"j/a", local_name=b"j/b")]), "invalid_archive", "mismatch"),
    "zip_local_parent": (zipped([Zipped(b"j/aaaa", local_name=b"../evi")]), "invalid_archive", "mismatch"),
    "zip_other_method": (zipped([Zipped(b"j/a", local_method=0)]), "invalid_archive", "mismatch"),
    "zip_other_crc": (zipped([Zipped(b"j/a", local_crc=1)]), "invalid_archive", "mismatch"),
    "zip_wrong_crc": (zipped([Zipped(b"j/a", stated_crc=1)]), "invalid_archive", None),
    "zip_too_long": (zipped([Zipped(b"j/a", b"x" * 900, stated_size=100)]), "invalid_archive", None),
    "zip_too_short": (zipped([Zipped(b"j/a", b"x" * 100, stated_size=900)]), "invalid_archive", None),
    "zip_stored_sizes": (zipped([Zipped(b"j/a", b"abc", method=0, stated_size=4)]), "invalid_archive", "mismatch"),
    "zip_data_behind_deflate": (
        zipped([Zipped(b"j/a", b"abc", packed=raw_deflate(b"abc") + b"more")]),
        "invalid_archive",
        None,
    ),
    "zip_damaged": (zipped([Zipped(b"j/a", b"abc", packed=b"\xff\xff\xff")]), "invalid_archive", None),
    "zip_overlap": (
        zipped([Zipped(b"j/a", b"abc" * 50), Zipped(b"j/a", b"abc" * 50, offset=0)]),
        "invalid_archive",
        None,
    ),
    "zip_overlap_by_size": (
        zipped([Zipped(b"j/a", b"x" * 40, method=0), Zipped(b"j/b", b"x" * 400, method=0, offset=0, local_name=b"")]),
        "invalid_archive",
        None,
    ),
    "zip_method": (zipped([Zipped(b"j/a", method=12)]), "invalid_archive", "bad_type"),
    "zip_folder_by_mode": (zipped([Zipped(b"j/a", mode=0o040755)]), "invalid_archive", "mismatch"),
    "zip_folder_with_content": (zipped([Zipped(b"j/a/", mode=0o040755)]), "invalid_archive", "bad_header"),
    "zip_second_name": (
        zipped([Zipped(b"j/a", extra=b"\x75\x70\x0c\0\1\0\0\0\0../evil")]),
        "invalid_archive",
        "mismatch",
    ),
    "zip_twice": (zipped([Zipped(b"j/a"), Zipped(b"j/a")]), "invalid_archive", "duplicate_member"),
    "zip_latin1": (zipped([Zipped(b"j/caf\xe9", flags=0)]), "invalid_archive", "bad_name"),
    "zip_data_before": (zipped([Zipped(b"j/a")], before=b"PK\3\4" + bytes(60)), "invalid_archive", None),
    "zip_data_behind": (zipped([Zipped(b"j/a")], after=b"evil"), "invalid_archive", None),
    "zip_cut": (zipped([Zipped(b"j/a", b"x" * 900)])[:-30], "invalid_archive", None),
    "zip_fewer": (zipped([Zipped(b"j/a"), Zipped(b"j/b")], count=1), "invalid_archive", None),
    "zip_more": (zipped([Zipped(b"j/a")], count=2), "invalid_archive", None),
    "zip_many": (zipped([Zipped(b"j/%d" % i) for i in range(60)]), "upload_too_large", "members"),
    "zip_far_offset": (zipped([Zipped(b"j/a", offset=0x7FFFFFFF)], before=b"PK\3\4"), "invalid_archive", None),
    "zip_bomb": (zipped([Zipped(b"j/a", bytes(900_000))]), "upload_too_large", "ratio"),
}


@pytest.mark.parametrize("name", TABLE)
def test_refused_and_nothing_left(name: str, tmp_path: Path) -> None:
    data, code, reason = TABLE[name]
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "victim").write_bytes(b"as it was")
    (outside / "evil").write_bytes(b"as it was")
    before = tree_of(outside)
    archive = tmp_path / "upload"
    archive.write_bytes(data)

    with pytest.raises(TraceflowError) as refused:
        unpack(archive, outside / "inner" / "target", scan(archive, LIMITS), LIMITS)

    assert refused.value.code == code
    if reason is not None:
        assert reason in (refused.value.details.get("reason"), refused.value.details.get("limit"))
    assert refused.value.message.isprintable()
    assert tree_of(outside) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["outside", "upload"]


def test_the_table_refuses_because_of_the_fault_alone() -> None:
    assert scan(io.BytesIO(tar()), LIMITS).files == 2
    assert scan(io.BytesIO(zipped([Zipped(b"j/a"), Zipped(b"j/b/", b"", mode=0o040755)])), LIMITS).files == 1
    assert scan(io.BytesIO(paxed(record("path", "j/b"))), LIMITS).files == 3


TRAVERSAL = "path_traversal"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("dotdot", TRAVERSAL),
        ("absolute", TRAVERSAL),
        ("drive", TRAVERSAL),
        ("nul_name", "bad_name"),
        ("empty_name_link", "link"),
        ("symlink_rel", "link"),
        ("symlink_inside", "link"),
        ("symlink_then_write", "link"),
        ("hardlink_out", "link"),
        ("hardlink_inside", "link"),
        ("hardlink_to_symlink", "link"),
        ("device", "special_file"),
        ("fifo", "special_file"),
        ("long_name", "bad_name"),
    ],
)
def test_case_71_archives_are_refused(name: str, reason: str) -> None:
    path = CASES / "71-archive-path-traversal-links-devices" / f"{name}.tar.gz"
    with pytest.raises(TraceflowError) as refused:
        scan(path)
    assert (refused.value.code, refused.value.details["reason"]) == ("invalid_archive", reason)


def test_case_71_a_set_user_id_program_is_kept_as_plain_data(tmp_path: Path) -> None:
    path = CASES / "71-archive-path-traversal-links-devices" / "setuid.tar.gz"
    found = scan(path)
    unpack(path, tmp_path / "out", found)
    assert [w["code"] for w in found.warnings] == ["mode_dropped"]
    assert tree_of(tmp_path / "out")["j/run.sh"][:2] == ("file", 0o644)


def test_a_fifo_in_place_of_an_archive_does_not_block(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceflowError) as refused:
        scan(tmp_path / "pipe")
    assert refused.value.code == "invalid_input"


def test_an_archive_that_changes_between_the_passes_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(GOOD + END)
    found = scan(archive)
    archive.write_bytes(file(b"j/result.json", b"{}") + file(b"j/other_one", b"{}") + END)
    with pytest.raises(TraceflowError, match="changed while it was read"):
        unpack(archive, tmp_path / "out", found)
    assert not (tmp_path / "out").exists()


def test_a_folder_in_use_is_no_target(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(GOOD + END)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine").touch()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("used", "link", "a.tar"):
        with pytest.raises(TraceflowError) as refused:
            unpack(archive, tmp_path / name, scan(archive))
        assert refused.value.code == "invalid_input"
    assert (tmp_path / "used" / "mine").exists()
    assert not (tmp_path / "elsewhere").exists()
