"""Packing runs into a Harbor job folder, one trial per run, by the rules of the official packing."""

from .job import PackOptions, pack_job
from .scores import read_exceptions, read_rewards

__all__ = ["PackOptions", "pack_job", "read_exceptions", "read_rewards"]
