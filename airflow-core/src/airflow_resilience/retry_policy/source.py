# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A policy file that may change while it is in use."""

from __future__ import annotations

from pathlib import Path

from airflow_resilience.retry_policy.document import PolicyFileError, parse_policies, read_content
from airflow_resilience.retry_policy.rule import PolicySet
from airflow_resilience.retry_policy.vocabulary import Vocabulary


class PolicySource:
    """
    The policies of a file. While the file is invalid or gone, the last valid policies stay in force.

    :param path: the file; looked up each time, because a kubelet changes a mounted ConfigMap by replacing a
        symbolic link in its path
    :param fallback: what is in force without a file
    :param vocabulary: words that can match, for warnings about others
    :raises PolicyFileError: if the file cannot be read or is invalid

    .. seealso:: https://kubernetes.io/docs/concepts/configuration/configmap/#mounted-configmaps-are-updated-automatically
    """

    def __init__(self, path: Path, fallback: PolicySet, vocabulary: Vocabulary | None = None) -> None:
        self._path = path
        self._fallback = fallback
        self._vocabulary = vocabulary
        self._seen: bytes | str = read_content(path)
        self._current = parse_policies(self._seen, str(path), fallback, vocabulary)

    @property
    def current(self) -> PolicySet:
        """The policies in force: a new object after each change that was taken over."""
        return self._current

    def refresh(self) -> PolicyFileError | None:
        """
        Take over the file if it has changed and is valid.

        :returns: why a change was not taken over, once for each change; else None
        """
        # The content itself is compared. Two edits within one tick of a file system's clock have the same
        # time and perhaps the same size, and to read some kilobytes takes no longer than to ask for these.
        try:
            content = read_content(self._path)
        except PolicyFileError as error:
            changed, self._seen = str(error) != self._seen, str(error)
            return error if changed else None
        if content == self._seen:
            return None
        self._seen = content
        try:
            self._current = parse_policies(content, str(self._path), self._fallback, self._vocabulary)
        except PolicyFileError as error:
            return error
        return None
