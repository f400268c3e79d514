# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Regular expressions that cannot hold up the scheduler.

Python's own engine backtracks: ``(a+)+$`` on a message of a hundred characters does not end, and cannot be
interrupted. RE2 takes linear time, and lacks the syntax that would need more.

.. seealso:: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import re2

_MEMORY: Final = 2**20
"""Bytes that RE2 may use for a compiled pattern. It refuses larger ones, which are slow too."""


class PatternError(ValueError):
    """A text is no regular expression of RE2. The message says why."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """
    A regular expression.

    :raises PatternError: if RE2 refuses it
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
    # Cached: each pattern of a file is compiled several times, to check it, to compare it with others, and
    # to use it.
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False  # to the standard error of the scheduler
    options.never_capture = True
    try:
        # As bytes, or half of a surrogate pair in a searched text would raise.
        return re2.compile(text.encode(errors="surrogatepass"), options)
    except re2.error as error:
        raise PatternError(error.args[0].decode(errors="replace")) from error
