# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The words that failures can have, for warnings about words that no failure has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from typing import Final

from airflow_resilience.context import StateChangeCategory, StateChangeReason
from airflow_resilience.retry_policy.fields import shown

_COMPARED_WORDS: Final = 200
"""Thousands of words take minutes to compare with each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """
    The known words of a platform for workers that fail, and what they are classified as.

    Runtimes and controllers may add words of their own, so an unknown word is doubtful, not wrong.
    """

    reasons: frozenset[str]
    """Of a worker as a whole, and of its containers."""
    reason_prefixes: tuple[str, ...] = ()
    """Prefixes of reasons, of conditions too, whose rest is a name."""
    words_of_others: Mapping[str, str] = field(default_factory=dict)
    """What is meant by words that no failure has and that do not look like it."""
    condition_types: frozenset[str]
    condition_reasons: frozenset[str]
    categories: frozenset[StateChangeCategory]
    """What a failure can be classified as."""
    classified_reasons: frozenset[StateChangeReason]
    """What a failure can be classified as."""

    def doubt(self, reason: str, others: Collection[str] = ()) -> str | None:
        """
        Return what is wrong with a word for a reason, if it is not known.

        :param others: words that would do as well
        """
        known = self.reasons | set(others)
        meant = self.words_of_others.get(reason)
        if reason in known or (reason.startswith(self.reason_prefixes) and not meant):
            return None
        similar = f" (did you mean {meant}?)" if meant else nearest(reason, sorted(known))
        return f"got {shown(reason)}, which is no reason that is known{similar}"


def nearest(word: str, possible: Iterable[str]) -> str:
    """Return a clause with the most similar known word, ignoring case; nothing if none is similar."""
    words = {name.lower(): name for name in islice(possible, _COMPARED_WORDS)}
    found = get_close_matches(word.lower(), list(words), n=1)
    return f" (did you mean {words[found[0]]}?)" if found else ""
