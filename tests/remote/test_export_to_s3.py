"""An export straight to S3: a real server on loopback; the archive is there whole or not at all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats.errors import TraceflowError

from traceflow.archive import NewMember
from traceflow.export.target import is_folder_url, write_archive, write_whole

s3_server = pytest.importorskip("s3_server", reason="needs s3fs and moto")
BUCKET: str = s3_server.BUCKET


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The file system of a running server."""
    from s3fs import S3FileSystem

    with s3_server.S3Server(tmp_path_factory.mktemp("s3")):
        yield S3FileSystem()


def members(count: int, broken_off: bool = False) -> Iterator[NewMember]:
    """Contents of 4 MB that do not compress: a few of them are more than one part of an upload."""
    for number in range(count):
        if broken_off and number == count - 1:
            raise KeyboardInterrupt
        data = random.Random(number).randbytes(4 << 20)
        yield NewMember(f"job/{number:04d}", len(data), chunks=lambda data=data: (data,))  # type: ignore[misc]


def sizes(s3: Any) -> dict[str, int]:
    s3.invalidate_cache()
    return {path.rpartition("/")[2]: info["size"] for path, info in s3.find(BUCKET, detail=True).items()}


def test_an_archive_lies_there_whole_or_not_at_all(s3: Any, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/exports/out.tar.gz"
    local = write_archive(members(16), tmp_path / "out.tar.gz")
    assert write_archive(members(16), url) == local
    assert sizes(s3) == {"out.tar.gz": local.archive_bytes}
    assert s3.cat_file(url) == (tmp_path / "out.tar.gz").read_bytes()
    for name in ("out.tar.gz", "new.tar.gz"):
        with pytest.raises(KeyboardInterrupt):
            write_archive(members(16, broken_off=True), f"s3://{BUCKET}/exports/{name}")
    assert sizes(s3) == {"out.tar.gz": local.archive_bytes}
    assert s3.call_s3("list_multipart_uploads", Bucket=BUCKET).get("Uploads", []) == []
    assert local.archive_bytes > s3.default_block_size  # so it was an upload in parts
    assert is_folder_url(f"s3://{BUCKET}/exports")
    assert not is_folder_url(url)


def test_a_bucket_that_is_not_there_is_said_and_not_made(s3: Any) -> None:
    with pytest.raises(TraceflowError) as caught:
        write_whole("s3://misspelt/exports/SHA256SUMS", b"0  out.tar.gz")
    assert caught.value.code == "io_error"
    s3.invalidate_cache()
    assert not s3.exists("misspelt")
