# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Regular expressions that cannot block the scheduler.

Python's own engine backtracks: ``(a+)+$`` on a message of a hundred characters does not end, and cannot be
interrupted. RE2 takes linear time, and lacks syntax that would need more.

.. seealso:: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import re2

_MEMORY: Final = 2**20
"""Bytes that RE2 may use for a compiled pattern. Larger patterns, which are slow too, are refused."""


class PatternError(ValueError):
    """A text is no regular expression of RE2. The message has the reason."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """
    A regular expression.

    :raises PatternError: if RE2 refuses it
    """

    text: str
    _compiled: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compile the text."""
        object.__setattr__(self, "_compiled", _compiled(self.text))

    def found_in(self, text: str) -> bool:
        """Say whether a text contains a match."""
        return self._compiled.search(text.encode(errors="replace")) is not None


@lru_cache(maxsize=1024)
def _compiled(text: str) -> Any:
    # The cache saves time: each pattern of a file is compiled several times, for checks, comparisons, and
    # use.
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False  # to the standard error of the scheduler
    options.never_capture = True
    try:
        # Half of a surrogate pair in a searched text would raise without bytes.
        return re2.compile(text.encode(errors="surrogatepass"), options)
    except re2.error as error:
        raise PatternError(error.args[0].decode(errors="replace")) from error
