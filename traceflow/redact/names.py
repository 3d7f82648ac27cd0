"""The secrets that the records state themselves: values in `env` and `kwargs` whose name says that they are secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

__all__ = ["RECORDS", "is_record", "is_secret_name", "stated"]

RECORDS = ("config.json", "lock.json", "result.json")
_MAPS = ("env", "kwargs")
# as Harbor has it (KEY, SECRET, TOKEN but not TOKENS, PASSWORD, CREDENTIAL, AUTH), and words that mean the same
_SECRET = re.compile(
    r"(?:KEY|SECRET|TOKEN(?!S|IZ)|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|AUTH(?!OR)|(?:^|_)PAT$)", re.IGNORECASE
)
# what stands for a value: a reference to a variable, or one that Harbor has masked
_MASKED = re.compile(r"\$\{[^}]*\}|.{0,4}\*{4}.{0,3}|\[REDACTED[^\]]*\]", re.DOTALL)


def is_record(path: str) -> bool:
    """Whether a file of a job is one of Harbor's records, of the job or of a trial."""
    name = path.rpartition("/")[2]
    return name in RECORDS and path.count("/") <= 1


def is_secret_name(name: str) -> bool:
    """Whether the name of a variable says that its value is secret."""
    return _SECRET.search(name) is not None


def stated(record: Any) -> Iterator[tuple[str, str]]:
    """The names and values of a record's secrets, in its order. Values that are masked already are passed over."""
    if isinstance(record, list):
        for item in record:
            yield from stated(item)
    elif isinstance(record, dict):
        for key, value in record.items():
            if key in _MAPS and isinstance(value, dict):
                for name, secret in value.items():
                    if not is_secret_name(name) or isinstance(secret, bool):
                        continue
                    text = str(secret).strip() if isinstance(secret, str | int | float) else ""
                    if text and not _MASKED.fullmatch(text):
                        yield name, text
            yield from stated(value)
