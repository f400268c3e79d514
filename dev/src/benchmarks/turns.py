# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What an observed executor notes about the scheduler's loop, in a file of one line for each moment."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum


class Moment(StrEnum):
    """What has happened."""

    WORK = "work"
    """A turn begins for which there are tasks to launch."""
    BEGIN = "begin"
    """``sync()`` begins."""
    END = "end"
    """``sync()`` has ended."""


@dataclass(frozen=True)
class Turns:
    """When it happened, in seconds since the epoch, in order."""

    work: list[float] = field(default_factory=list)
    begin: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)

    @property
    def durations(self) -> list[float]:
        """How long the turns that have ended took, in seconds."""
        return [end - begin for begin, end in zip(self.begin, self.end, strict=False)]

    def since(self, moment: float) -> Turns:
        """Return those that began after a moment."""
        skipped = sum(begin < moment for begin in self.begin)
        work = [at for at in self.work if at >= moment]
        return Turns(work, self.begin[skipped:], self.end[skipped:])


def parse_turns(text: str) -> Turns:
    """Read what was noted; a line that is not complete yet is left for later."""
    times: dict[str, list[float]] = defaultdict(list)
    complete, _, _ = text.rpartition("\n")
    for line in complete.splitlines():
        kind, at = line.split()
        times[Moment(kind)].append(float(at))
    return Turns(**{moment: times[moment] for moment in Moment})
