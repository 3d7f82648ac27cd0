"""Names of archive members: what is refused, what is normalised, what is only worth a warning.

A safe name is a relative POSIX path in UTF-8 without `.` or `..` components. It is refused where any common
reader, on any platform, could take it for a place outside the folder it is unpacked into; it is kept where it is
merely odd, since agents do make files with odd names and their bytes are kept.
"""

from __future__ import annotations

import re
import unicodedata

from traceflow_formats.errors import TraceflowError

from ..hashset import HashSet
from ..limits import Limits

__all__ = ["NameTree", "bad_member", "name_warnings", "relative_name", "safe_name", "shown", "windows_problem"]

_DEFAULT = Limits()
_DRIVE = re.compile(r"[A-Za-z]:").match
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]").search
_SEPARATORS = re.compile(r"[/\\]")
_WINDOWS_DEVICE = re.compile(r"(?i)(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(COM|LPT)[0-9¹²³])\s*(\.|:|$)").match
_WINDOWS_ILLEGAL = re.compile(r'[<>:"|?*\\\x00-\x1f]').search


def shown(name: bytes | str) -> str:
    """A name as it stands in a message: quoted, what is not printable escaped, cut to 120 characters."""
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    return repr(text if len(text) <= 120 else f"{text[:100]}...{text[-17:]}")


def bad_member(name: bytes | str, problem: str, reason: str) -> TraceflowError:
    """The refusal of an archive because of one member. `details` hold the member and a machine-readable reason."""
    plain = shown(name)
    return TraceflowError(
        "invalid_archive",
        f"archive member {plain} {problem}; nothing was kept of the archive: pack it again without that member",
        member=plain[1:-1],
        reason=reason,
    )


def safe_name(name: bytes | str, limits: Limits = _DEFAULT) -> str:
    """The name as a relative POSIX path: no empty and no `.` components, no slash at the end.

    Raises `invalid_archive` with `details["reason"]` = "path_traversal" (absolute, drive letter, UNC, a `..`
    component, with slashes of either kind) or "bad_name" (no UTF-8, NUL, empty, too long, too deep).
    """
    path = relative_name(name, limits)
    if not path:
        raise bad_member(name, "has no name", "bad_name")
    return path


def relative_name(name: bytes | str, limits: Limits) -> str:
    """As `safe_name`, but "" for the archive's own top folder ("./")."""
    try:
        text = name.decode("utf-8") if isinstance(name, bytes) else name
        raw = text.encode("utf-8")  # a name from the file system may hold surrogate escapes
    except UnicodeError:
        raise bad_member(name, "has a name that is no UTF-8", "bad_name") from None
    if not text:
        raise bad_member(name, "has no name", "bad_name")
    if "\0" in text:
        raise bad_member(name, "has a NUL in its name", "bad_name")
    if text[0] in "/\\" or _DRIVE(text):
        raise bad_member(name, "has an absolute path", "path_traversal")
    if len(raw) > limits.path_bytes:
        raise bad_member(name, f"has a path of over {limits.path_bytes} bytes", "bad_name")
    if ".." in text and ".." in _SEPARATORS.split(text):
        raise bad_member(name, "leads outside the archive", "path_traversal")
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if len(parts) > limits.path_depth:
        raise bad_member(name, f"lies over {limits.path_depth} levels deep", "bad_name")
    if len(raw) > limits.name_bytes and any(len(part.encode()) > limits.name_bytes for part in parts):
        raise bad_member(name, f"has a path component of over {limits.name_bytes} bytes", "bad_name")
    return "/".join(parts)


def name_warnings(name: str) -> list[tuple[str, str]]:
    """What is odd about a safe name: (code, message) pairs. Such a name is kept as it is."""
    found = []
    if "\\" in name:
        found.append(("backslash_in_name", "a backslash in a name is an ordinary character here"))
    if _CONTROL(name):
        found.append(("control_character_in_name", "a name holds control characters"))
    return found


def windows_problem(name: str) -> str | None:
    """Why Windows cannot unpack a member of this name, or None."""
    for part in name.split("/"):
        if _WINDOWS_DEVICE(part):
            return f"{part!r} is a reserved name"
        if part[-1:] in (".", " "):
            return f"{shown(part)} ends in a dot or a space"
        if match := _WINDOWS_ILLEGAL(part):
            return f"{shown(part)} holds {match.group()!r}"
    return None


class NameTree:
    """All names of one archive as they come: no name twice, no file that is also a folder.

    It holds 64-bit hashes, not names: 8 to 24 bytes for each file and folder, so that a million of them fit.
    Folders that only a member's path implies count as well, since unpacking makes them.
    """

    def __init__(self, limits: Limits = _DEFAULT) -> None:
        self._limits = limits
        self._files = HashSet()
        self._folders = HashSet()
        self._folded = HashSet()
        self._last_folder = ""
        self.twins = 0  # names that differ from another only in case or Unicode form
        self.first_twin: str | None = None

    def add(self, name: str, directory: bool) -> None:
        """Take a safe name. Raises `invalid_archive` (reason "duplicate_member"), `upload_too_large`.

        A folder may come more than once, and before or after what lies in it.
        """
        parent, slash, _ = name.rpartition("/")
        if slash and parent != self._last_folder:
            self._add_folder(parent, name)
            self._last_folder = parent
        if directory:
            self._add_folder(name, name)
            return
        key = hash(name)
        if key in self._folders:
            raise bad_member(name, "is both a file and a folder", "duplicate_member")
        if not self._files.add(key):
            raise bad_member(name, "is there twice", "duplicate_member")
        self._fold(name)

    def __len__(self) -> int:
        return len(self._files) + len(self._folders)

    def _add_folder(self, name: str, member: str) -> None:
        while name:
            key = hash(name)
            if key in self._files:
                raise bad_member(member, f"lies in or is a folder, but {shown(name)} is a file", "duplicate_member")
            if not self._folders.add(key):
                return
            self._fold(name)
            name = name.rpartition("/")[0]

    def _fold(self, name: str) -> None:
        if len(self) > self._limits.members:
            raise TraceflowError(
                "upload_too_large",
                f"the archive holds over {self._limits.members} files and folders, at {shown(name)}: split it, or"
                " raise the limit `members`",
                member=name,
                limit="members",
                value=self._limits.members,
            )
        folded = name.casefold() if name.isascii() else _folded(name)
        if not self._folded.add(hash(folded)):
            self.twins += 1
            self.first_twin = self.first_twin or name


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())
