# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The executors that are configured, and which of them are ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from airflow.executors.executor_loader import ExecutorLoader
from airflow.executors.executor_utils import ExecutorName

from airflow.providers.cncf.kubernetes_resilience.cli.errors import CommandError
from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor


def read_names() -> tuple[Sequence[ExecutorName], Sequence[ExecutorName]]:
    """
    Return the names of all executors, and of those that are ours.

    :raises CommandError: if none of them is ours
    """
    names = ExecutorLoader.get_executor_names()
    ours = [name for name in names if _is_ours(name)]
    if not ours:
        raise CommandError("[core] executor names no executor of this provider")
    return names, ours


def load(name: ExecutorName) -> KubernetesExecutor:
    """Make an executor of ours, which is not started."""
    return cast("KubernetesExecutor", ExecutorLoader.load_executor(name))


def texts_of(name: ExecutorName) -> set[str]:
    """Return by what a task can name an executor: an alias, a class with its module, or without."""
    texts = {name.module_path, name.module_path.rpartition(".")[2]}
    return texts | {name.alias} if name.alias else texts


def _is_ours(name: ExecutorName) -> bool:
    try:
        class_, _ = ExecutorLoader.import_executor_cls(name)
    except ImportError:
        return False  # that of another provider, which is not installed here
    return issubclass(class_, KubernetesExecutor)
