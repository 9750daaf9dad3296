"""The logits that the first sweep over the vocabulary ends with, kept for the second to begin with: one chunk's product
less.

At most one such chunk is held in a process: a later loss takes the place of one whose gradient has not been asked for
yet, and that one's logits are computed again.  So losses that wait for their backward hold no logits but one chunk.
"""

from __future__ import annotations

import weakref
from typing import ClassVar

from ..._arrays import Array


class LastChunk:
    """Room for the logits of any chunk, which holds those of the last, or nothing."""

    _newest: ClassVar[weakref.ref[LastChunk] | None] = None

    def __init__(self) -> None:
        self._buffer: Array | None = None

    @classmethod
    def make_room(cls) -> None:
        """Let go of what the newest holds, before another chunk is allocated."""
        older = None if LastChunk._newest is None else LastChunk._newest()
        if older is not None:
            older._buffer = None

    def keep(self, buffer: Array) -> None:
        """Hold `buffer`, and nothing else in this process."""
        self.make_room()
        self._buffer = buffer
        LastChunk._newest = weakref.ref(self)

    def take(self) -> Array | None:
        """What is held, to be written over; it is held no longer."""
        buffer, self._buffer = self._buffer, None
        return buffer
