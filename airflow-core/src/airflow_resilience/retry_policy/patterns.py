# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Regular expressions that cannot hold up the scheduler.

Python's own engine backtracks: ``(a+)+$`` takes longer than the universe has existed to say no to a message
of a hundred characters, and nothing can interrupt it. RE2 takes a time that grows with the length of pattern
and text, and has none of the syntax that this cannot be had with.

.. seealso:: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import re2

_MEMORY: Final = 2**20
"""Bytes that RE2 may use for a compiled pattern, of which it refuses larger ones. Time grows with it too."""


class PatternError(ValueError):
    """A text is no regular expression to RE2; the text says why."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """
    A regular expression.

    :raises PatternError: if it is none to RE2
    """

    text: str
    _compiled: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compile it."""
        object.__setattr__(self, "_compiled", _compiled(self.text))

    def found_in(self, text: str) -> bool:
        """Say whether it is found anywhere in a text."""
        return self._compiled.search(text.encode(errors="replace")) is not None


@lru_cache(maxsize=1024)
def _compiled(text: str) -> Any:
    # Kept, since a file that is read has each of its patterns made several times: to check it, to compare
    # it with others, and to use it.
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False  # to the standard error of the scheduler
    options.never_capture = True
    try:
        # As bytes, or half of a surrogate pair in a searched text would raise.
        return re2.compile(text.encode(errors="surrogatepass"), options)
    except re2.error as error:
        raise PatternError(error.args[0].decode(errors="replace")) from error
