"""Redaction: secrets found, each replaced by its marker, counted by kind and file. The store is not touched."""

from .detector import Detector
from .secrets import Secrets

__all__ = ["Detector", "Secrets"]
