# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The options that retry policies depend on, checked. Pure: they are also read without Airflow."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from airflow_resilience.context import StateChangeReason
from airflow_resilience.decision import LONGEST_DELAY
from airflow_resilience.retry_policy.built_in import built_in
from airflow_resilience.retry_policy.rule import (
    BUDGET_OPTION,
    DELAY_OPTION,
    REASONS_OPTION,
    InfrastructureBudget,
    PolicySet,
)

UPSTREAM_SECTION = "kubernetes_executor"
OWN_SECTION = "kubernetes_resilience"
LAUNCH_RETRIES = "pod_launch_failure_retries"
EXCLUDED_REASONS = "pod_launch_failure_excluded_container_reasons"
POLICY_FILE = "retry_policy_file"

Number = TypeVar("Number", int, float)


class OptionError(Exception):
    """A configured value cannot be used. The text names section, key, value and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """The checked configuration of retry policies."""

    launch_failure_retries: int
    """``[kubernetes_executor] pod_launch_failure_retries``: relaunches for one try; -1 for no limit."""
    excluded_container_reasons: frozenset[str]
    """``[kubernetes_executor] pod_launch_failure_excluded_container_reasons``: no relaunch with these;
    of ``Error`` only the worker container's own."""
    retry_policy_file: Path | None
    """``[kubernetes_resilience] retry_policy_file``; None for the policy that is built in."""
    infrastructure_retry_budget: int
    """``[kubernetes_resilience] infrastructure_retry_budget``: how often a running task may be launched again
    in one try; 0 for never, -1 for no limit."""
    infrastructure_retry_delay: float
    """``[kubernetes_resilience] infrastructure_retry_delay``, seconds."""
    infrastructure_retry_reasons: frozenset[StateChangeReason]
    """``[kubernetes_resilience] infrastructure_retry_reasons``: reasons of category INFRASTRUCTURE for which
    the budget is used without a rule."""

    @property
    def built_in(self) -> PolicySet:
        """The policies without a file: what options of the official executor and of ours ask for."""
        return built_in(
            self.launch_failure_retries,
            self.excluded_container_reasons,
            InfrastructureBudget(
                budget=self.infrastructure_retry_budget,
                delay=self.infrastructure_retry_delay,
                reasons=self.infrastructure_retry_reasons,
            ),
        )


def read_policy_settings(conf: Any) -> PolicySettings:
    """
    Read and check the options that retry policies depend on.

    :param conf: something with the method ``get()`` of Airflow's configuration
    :raises OptionError: if a value cannot be used
    """
    return PolicySettings(
        launch_failure_retries=read_limit(conf, UPSTREAM_SECTION, LAUNCH_RETRIES, fallback="1"),
        excluded_container_reasons=words(conf.get(UPSTREAM_SECTION, EXCLUDED_REASONS, fallback="Error")),
        retry_policy_file=_path(conf, POLICY_FILE),
        infrastructure_retry_budget=read_limit(conf, OWN_SECTION, BUDGET_OPTION),
        infrastructure_retry_delay=read_seconds(conf, DELAY_OPTION, "a number of seconds, 0 or more"),
        infrastructure_retry_reasons=_reasons(conf, REASONS_OPTION),
    )


def read_limit(conf: Any, section: str, key: str, **options: str) -> int:
    """
    Read how often something may be done.

    :raises OptionError: if it is no number, or below -1
    """
    allowed = "a whole number: 0 for none, -1 for no limit, or how many"
    return read_number(int, conf, section, key, -1, allowed=allowed, **options)


def read_seconds(conf: Any, key: str, allowed: str, minimum: float = 0.0) -> float:
    """
    Read a time of ours; what is longer than a year is a year.

    :param allowed: what the error says is allowed
    :raises OptionError: if it is no number, below the minimum or infinite
    """
    return min(LONGEST_DELAY, read_number(float, conf, OWN_SECTION, key, minimum, allowed=allowed))


def read_number(
    kind: Callable[[str], Number],
    conf: Any,
    section: str,
    key: str,
    minimum: Number,
    *,
    allowed: str,
    **options: str,
) -> Number:
    """
    Read a number.

    :param allowed: what the error says is allowed
    :raises OptionError: if it is none, or below the minimum, or infinite
    """
    text = conf.get(section, key, **options)
    try:
        value = kind(text)
    except (TypeError, ValueError):
        value = None
    if value is None or not minimum <= value < math.inf:  # which is also false of "nan"
        raise OptionError(f"[{section}] {key} = {text!r} cannot be used; allowed is {allowed}")
    return value


def words(text: str | None) -> frozenset[str]:
    """Return the words of a list with commas."""
    return frozenset(filter(None, map(str.strip, (text or "").split(","))))


def _reasons(conf: Any, key: str) -> frozenset[StateChangeReason]:
    text = conf.get(OWN_SECTION, key)
    named = words(text)
    if unknown := sorted(named - StateChangeReason.__members__.keys()):
        raise OptionError(
            f"[{OWN_SECTION}] {key} = {text!r} cannot be used: {', '.join(unknown)} is not among what is"
            f" allowed, which is a list, with commas, of {', '.join(StateChangeReason)}"
        )
    return frozenset(map(StateChangeReason, named))


def _path(conf: Any, key: str) -> Path | None:
    text = conf.get(OWN_SECTION, key, fallback="").strip()
    return Path(text) if text else None
