"""The files of a trial: browsed, read, searched and packed, from the store or from a capture of its file system."""

from .browse import ByteRange, TrialFiles, parse_range
from .logs import STREAMS, trial_logs
from .model import Entry

__all__ = ["STREAMS", "ByteRange", "Entry", "TrialFiles", "parse_range", "trial_logs"]
