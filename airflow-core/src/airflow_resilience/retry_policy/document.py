# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Reads a policy file. The result is policies, or one error that lists all problems."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from airflow_resilience.retry_policy.lint import Vocabulary, find_warnings
from airflow_resilience.retry_policy.marked_yaml import MarkedYaml, NotYamlError, Problem, read_marked
from airflow_resilience.retry_policy.problems import find_problems, path_of
from airflow_resilience.retry_policy.rule import PolicySet
from airflow_resilience.retry_policy.schema import PolicyFile

MAX_SIZE: Final = 256 * 1024
"""Bytes: enough for a thousand rules. Reading a file of this size blocks the scheduler for seconds."""
_SHOWN_PROBLEMS: Final = 100


class PolicyFileError(ValueError):
    """A policy file cannot be used. The text has a line for each problem: place, problem, allowed values."""

    def __init__(self, name: str, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line))
        lines = [_as_text(name, problem) for problem in self.problems[:_SHOWN_PROBLEMS]]
        if more := len(self.problems) - len(lines):
            lines.append(f"{name}: and {more} more")
        super().__init__("\n".join(lines))


def _as_text(name: str, problem: Problem, kind: str = "") -> str:
    place = f"{name}:{problem.line}" if problem.line else name
    return ": ".join(filter(None, (place, kind, path_of(problem.location), problem.text)))


def read_content(path: Path) -> bytes:
    """
    Return the content of a policy file. A longer file is cut just above the limit.

    :raises PolicyFileError: if it cannot be read
    """
    try:
        # Reading from a pipe would block the scheduler.
        if not stat.S_ISREG(path.stat().st_mode):
            raise PolicyFileError(str(path), [Problem(0, (), "is no regular file")])
        with path.open("rb") as file:
            return file.read(MAX_SIZE + 1)
    except OSError as error:
        raise PolicyFileError(str(path), [Problem(0, (), f"cannot be read: {error.strerror}")]) from error


def parse_policies(
    content: str | bytes, name: str, fallback: PolicySet, vocabulary: Vocabulary | None = None
) -> PolicySet:
    """
    Read the content of a policy file.

    :param content: YAML; bytes are UTF-8
    :param name: name of the file in errors, and origin of the policies
    :param fallback: policies in force without a file; they join the policies of the file, and their default
        is used if the file names none
    :param vocabulary: words that can match, for warnings about others; None for no such warnings
    :raises PolicyFileError: if the content is invalid
    """
    try:
        document = read_marked(_decoded(content))
    except NotYamlError as error:
        raise PolicyFileError(name, [error.problem]) from error
    if document.data is None:
        raise PolicyFileError(name, [Problem(0, (), "is empty; a file without policies is not named at all")])
    invalid = [
        Problem(document.line(location), location, text)
        for location, text in find_problems(document.data, fallback.policies).items()
    ]
    if problems := [*document.problems, *invalid]:
        raise PolicyFileError(name, problems)
    file = PolicyFile.model_validate(document.data)
    return replace(file.compile(name, fallback), warnings=tuple(_warnings(file, name, document, vocabulary)))


def _warnings(
    file: PolicyFile, name: str, document: MarkedYaml, vocabulary: Vocabulary | None
) -> Iterator[str]:
    # Only warnings to be shown are searched for: finding similar words is slow.
    found = islice(find_warnings(file, vocabulary), _SHOWN_PROBLEMS)
    warnings = [Problem(document.line(location), location, text) for location, text in found]
    for warning in sorted(warnings, key=lambda warning: warning.line):
        yield _as_text(name, warning, "warning")


def _decoded(content: str | bytes) -> str:
    if len(content) > MAX_SIZE:
        raise NotYamlError(0, f"is too long; allowed: {MAX_SIZE // 1024} KiB")
    if isinstance(content, str):
        return content
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise NotYamlError(line, f"not UTF-8: the byte 0x{content[error.start]:02X}") from error


class PolicySource:
    """
    The policies of a file. While the file is invalid or gone, the last valid policies stay in force.

    :param path: the file; looked up each time, because a kubelet changes a mounted ConfigMap by replacing a
        symbolic link in its path
    :param fallback: policies in force without a file
    :param vocabulary: words that can match, for warnings about others
    :raises PolicyFileError: if the file cannot be read or is invalid

    .. seealso:: https://kubernetes.io/docs/concepts/configuration/configmap/#mounted-configmaps-are-updated-automatically
    """

    def __init__(self, path: Path, fallback: PolicySet, vocabulary: Vocabulary | None = None) -> None:
        self._path = path
        self._fallback = fallback
        self._vocabulary = vocabulary
        self._seen: bytes | str = read_content(path)
        self.current = parse_policies(self._seen, str(path), fallback, vocabulary)
        """The policies in force: a new object after each accepted change."""

    def refresh(self) -> PolicyFileError | None:
        """
        Accept a change of the file, if valid.

        :returns: the error of a change that was not accepted, once for each change; else None
        """
        # The content itself is compared. Two edits within one tick of a file system's clock have the same
        # time and perhaps the same size, and reading some kilobytes is as fast as reading these.
        try:
            content = read_content(self._path)
        except PolicyFileError as error:
            changed, self._seen = str(error) != self._seen, str(error)
            return error if changed else None
        if content == self._seen:
            return None
        self._seen = content
        try:
            self.current = parse_policies(content, str(self._path), self._fallback, self._vocabulary)
        except PolicyFileError as error:
            return error
        return None
