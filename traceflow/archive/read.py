"""Reading archives: `scan` looks at every member and writes nothing, `unpack` writes what a scan found safe.

Both passes stream: memory does not grow with the archive, but for the list of members. An archive is refused as a
whole, with the member named, before the first byte is written: links (Harbor's archives never hold any), devices,
FIFOs, sparse files, names that lead outside, sizes over the bounds, damage of any kind.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from traceflow_formats.errors import TraceflowError

from ..files import remove_tree
from ..limits import Limits, format_size
from .members import Member, MemberTable, Notes, Scan
from .names import NameTree, bad_member, name_warnings, relative_name, shown
from .streams import Progress, archive_format, open_archive, open_stream
from .tar_read import RawMember, TarReader
from .zip_read import ZipReader

__all__ = ["Archive", "read_members", "scan", "unpack"]

Archive = str | os.PathLike[str] | BinaryIO  # a path, or a seekable binary file


def scan(archive: Archive, limits: Limits | None = None, *, progress: Progress | None = None) -> Scan:
    """Read all headers of an archive (.tar.gz, .tar.zst, .tar, .zip by content) and find it safe, or refuse it.

    Members over `file_bytes` are no reason to refuse: they stand in the list with their size. Raises
    `invalid_archive` and `upload_too_large` (details: member, reason or limit), `not_found`, `invalid_input`.
    """
    bounds = limits or Limits()
    notes = Notes()
    tree = NameTree(bounds)
    table = MemberTable(bounds)
    top = _TopFolder()
    total = files = 0
    with _reader(archive, bounds, notes, progress) as (kind, size, reader):
        for raw in reader:
            member = _safe(raw, bounds, notes)
            if member is None:
                continue
            total += member.size
            _check_total(total, size, member, bounds)
            tree.add(member.name, member.directory)
            if len(table) >= bounds.members:
                raise _too_many(bounds)
            table.append(member)
            top.add(member)
            files += not member.directory
        if isinstance(reader, TarReader) and not reader.end_mark:
            notes.warn("no_end_mark", "the tar has no end mark; whoever made it may have been interrupted")
        elif isinstance(reader, TarReader) and (trailing := reader.trailing()):
            notes.warn(
                "trailing_data",
                f"{trailing} bytes that are not zero follow the end of the archive and were not read"
                " (two archives joined?)",
            )
    if tree.twins:
        notes.warn(
            "name_twin",
            "names differ only in case or Unicode form; some file systems cannot hold both",
            tree.first_twin,
            tree.twins,
        )
    if top.root is not None and top.outside:
        notes.warn("outside_root", f"members beside the folder {shown(top.root)}", top.first_outside, top.outside)
    return Scan(kind, size, total, files, table, top.root, notes)


def read_members(
    archive: Archive, found: Scan, limits: Limits | None = None, *, progress: Progress | None = None
) -> Iterator[tuple[Member, Iterator[bytes]]]:
    """The members of a scanned archive with their content, in order: a second pass that writes nothing.

    The content of a member can be read until the next member is asked for; it may be left unread. Raises
    `invalid_archive` when the archive is not the one that was scanned, or when a zip member is damaged.
    """
    bounds = limits or Limits()
    expected = iter(found.members)
    with _reader(archive, bounds, Notes(), progress) as (_, size, reader):
        for raw in reader:
            member = _safe(raw, bounds, Notes())
            if member is None:
                continue
            if size != found.archive_bytes or next(expected, None) != member:
                raise _changed(member.name)
            yield member, reader.chunks()
        if next(expected, None) is not None:
            raise _changed(None)


def unpack(
    archive: Archive,
    target: Path,
    found: Scan,
    limits: Limits | None = None,
    *,
    only: Callable[[Member], bool] | None = None,
    progress: Progress | None = None,
) -> int:
    """Write the members of a scanned archive below `target`; how many files were written.

    `target` is made (mode 0700), or is an empty folder; nobody else may write there meanwhile. Files get mode 0644
    or 0755 whatever the umask. Members over `file_bytes`, and those that `only` declines, are left out. On any
    failure, an interrupt included, all that was written is removed. Raises as `read_members`, `upload_too_large`
    when the disk is too small, `invalid_input` when `target` is in use, `io_error` when the disk fails.
    """
    bounds = limits or Limits()
    made = _make_target(target)
    try:
        _check_disk(target, found, bounds, only)
        written = 0
        folders = {""}
        for member, chunks in read_members(archive, found, bounds, progress=progress):
            if member.size > bounds.file_bytes or (only is not None and not only(member)):
                continue
            if member.directory:
                _make_folders(target, member.name, folders)
                continue
            _make_folders(target, member.name.rpartition("/")[0], folders)
            _write_file(target / member.name, member, chunks)
            written += 1
        return written
    except BaseException as error:
        _remove(target, itself=made)
        if isinstance(error, OSError):
            problem = error.strerror or error
            raise TraceflowError("io_error", f"unpacking to {target} failed: {problem}", path=str(target)) from error
        raise


# -- members ---------------------------------------------------------------------------------------------------


@contextmanager
def _reader(
    archive: Archive, limits: Limits, notes: Notes, progress: Progress | None
) -> Iterator[tuple[str, int, TarReader | ZipReader]]:
    """The format, the size and the reader of an archive."""
    with open_archive(archive, limits) as (file, size), _io_errors():
        kind = archive_format(file.read(512))
        file.seek(0)
        if kind == "zip":
            yield kind, size, ZipReader(file, size, limits, notes, progress)
        else:
            yield kind, size, TarReader(open_stream(kind, file, size, limits, progress), limits)


@contextmanager
def _io_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TraceflowError("io_error", f"reading the archive failed: {error.strerror or error}") from error


def _safe(raw: RawMember, limits: Limits, notes: Notes) -> Member | None:
    """The member with its name checked; None for the archive's own top folder."""
    name = relative_name(raw.name, limits)
    if not name:
        if raw.directory:
            return None
        raise bad_member(raw.name, "has no name", "bad_name")
    for code, message in name_warnings(name):
        notes.warn(code, message, name)
    if raw.directory:
        return Member(name, directory=True)
    special = raw.mode & 0o7000
    if special:  # a program that was to run as somebody else is no longer to be run at all
        notes.warn("mode_dropped", "set-user-id, set-group-id and sticky bits were dropped, and with them x", name)
    return Member(name, raw.size, not special and bool(raw.mode & 0o111))


def _check_total(total: int, archive_bytes: int, member: Member, limits: Limits) -> None:
    allowed, name = limits.unpacked_allowed(archive_bytes)
    if total > allowed:
        raise TraceflowError(
            "upload_too_large",
            f"the archive of {format_size(archive_bytes)} claims to unpack to over {format_size(allowed)}, at member"
            f" {shown(member.name)} of {member.size} bytes: split the job, or raise the limit `{name}`",
            member=member.name,
            limit=name,
            value=getattr(limits, name),
        )


def _too_many(limits: Limits) -> TraceflowError:
    return TraceflowError(
        "upload_too_large",
        f"the archive holds over {limits.members} members: split it, or raise the limit `members`",
        limit="members",
        value=limits.members,
    )


def _changed(name: str | None) -> TraceflowError:
    at = "it ends early" if name is None else f"at member {shown(name)}"
    return TraceflowError("invalid_archive", f"the archive changed while it was read ({at}): try again", member=name)


class _TopFolder:
    """The one top folder of an archive, what macOS puts beside it (`__MACOSX/`, `._name`, `.DS_Store`) left aside."""

    def __init__(self) -> None:
        self._top: str | None = None
        self._several = False
        self.outside = 0
        self.first_outside: str | None = None

    def add(self, member: Member) -> None:
        top, slash, _ = member.name.partition("/")
        if top in ("__MACOSX", ".DS_Store") or (top.startswith("._") and not slash and not member.directory):
            self.outside += not member.directory
            self.first_outside = self.first_outside or member.name
        elif not slash and not member.directory:
            self._several = True
        elif self._top is None:
            self._top = top
        elif top != self._top:
            self._several = True

    @property
    def root(self) -> str | None:
        return None if self._several else self._top


# -- writing ---------------------------------------------------------------------------------------------------


def _make_target(target: Path) -> bool:
    """Make the folder, or find it empty; whether it was made."""
    try:
        target.mkdir(mode=0o700)
        return True
    except FileExistsError:
        if target.is_symlink() or not target.is_dir() or any(target.iterdir()):
            raise TraceflowError(
                "invalid_input", f"{target} is there and is no empty folder", path=str(target)
            ) from None
        return False
    except OSError as error:
        raise TraceflowError("io_error", f"{target}: {error.strerror}", path=str(target)) from None


def _check_disk(target: Path, found: Scan, limits: Limits, only: Callable[[Member], bool] | None) -> None:
    free = shutil.disk_usage(target).free
    if found.unpacked_bytes <= free:
        return
    needed = sum(
        member.size for member in found.members if member.size <= limits.file_bytes and (only is None or only(member))
    )
    if needed > free:
        raise TraceflowError(
            "upload_too_large",
            f"the archive unpacks to {format_size(needed)}, but {target} has {format_size(free)} free",
            limit="unpacked_bytes",
            value=free,
        )


def _make_folders(target: Path, name: str, made: set[str]) -> None:
    """Make a folder below the target and those above it. `made` holds what is known, and never very much."""
    if name in made:
        return
    if len(made) > 10_000:
        made.clear()
        made.add("")
    _make_folders(target, name.rpartition("/")[0], made)
    path = target / name
    try:
        path.mkdir()
        path.chmod(0o755)
    except FileExistsError:
        pass  # the scan has seen that it is no file of ours, and links are never made
    made.add(name)


_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def _write_file(path: Path, member: Member, chunks: Iterator[bytes]) -> None:
    try:
        descriptor = os.open(path, _CREATE, 0o600)
    except FileExistsError:
        raise bad_member(
            member.name, "cannot be told from another name on this file system", "duplicate_member"
        ) from None
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                view = view[file.write(view) :]
    path.chmod(member.mode)


def _remove(target: Path, *, itself: bool) -> None:
    if itself:
        remove_tree(target)
        return
    for entry in target.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            remove_tree(entry)
        else:
            entry.unlink(missing_ok=True)
