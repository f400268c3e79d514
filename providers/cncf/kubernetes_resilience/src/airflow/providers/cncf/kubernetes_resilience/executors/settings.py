# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The configuration that the executor reads, once, when it starts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from airflow.exceptions import AirflowConfigException

UPSTREAM_SECTION = "kubernetes_executor"
OWN_SECTION = "kubernetes_resilience"
EXCLUDED_REASONS = "pod_launch_failure_excluded_container_reasons"

SHORTEST_WATCH_INACTIVITY = 90.0
"""Seconds. The API server ends a watch at 0.4 of the limit or later; less would be reconnects."""

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Settings:
    """What can be configured, checked."""

    launch_failure_retries: int
    """``[kubernetes_executor] pod_launch_failure_retries``: relaunches for one try; -1 for no limit."""
    excluded_container_reasons: frozenset[str]
    """``[kubernetes_executor] pod_launch_failure_excluded_container_reasons``: no relaunch with these;
    of ``Error`` only the worker container's own."""
    publish_retries: int
    """``[kubernetes_executor] task_publish_max_retries``: repetitions of a create call; -1 for no limit."""
    api_concurrency: int
    """``[kubernetes_resilience] api_concurrency``: changing requests under way at one time."""
    watch_inactivity_timeout: float
    """``[kubernetes_resilience] watch_inactivity_timeout``, seconds."""
    unschedulable_timeout: float
    """``[kubernetes_resilience] unschedulable_timeout``, seconds; 0 for never."""
    retry_policy_file: Path | None
    """``[kubernetes_resilience] retry_policy_file``; None for the policy that is built in."""


def read_settings(conf: Any) -> Settings:
    """
    Read and check the configuration.

    :param conf: Airflow's configuration, or a team's (``ExecutorConf``)
    :raises AirflowConfigException: naming section, key, value and what is allowed
    """
    if conf.get(UPSTREAM_SECTION, "client_factory", fallback=None) and not conf.get(
        UPSTREAM_SECTION, "async_client_factory", fallback=None
    ):
        raise AirflowConfigException(
            f"[{UPSTREAM_SECTION}] client_factory is set and async_client_factory is not; this executor talks"
            " to Kubernetes through the latter only, and must not end up in another cluster"
        )
    excluded = conf.get(UPSTREAM_SECTION, EXCLUDED_REASONS, fallback="Error")
    return Settings(
        launch_failure_retries=_limit(conf, "pod_launch_failure_retries", fallback="1"),
        excluded_container_reasons=frozenset(filter(None, map(str.strip, (excluded or "").split(",")))),
        publish_retries=_limit(conf, "task_publish_max_retries", fallback="0"),
        api_concurrency=_number(
            int, conf, OWN_SECTION, "api_concurrency", 1, allowed="a whole number, 1 or more"
        ),
        watch_inactivity_timeout=_number(
            float,
            conf,
            OWN_SECTION,
            "watch_inactivity_timeout",
            SHORTEST_WATCH_INACTIVITY,
            allowed=f"a number of seconds, {SHORTEST_WATCH_INACTIVITY:g} or more",
        ),
        unschedulable_timeout=_number(
            float,
            conf,
            OWN_SECTION,
            "unschedulable_timeout",
            0.0,
            allowed="a number of seconds, or 0 for no limit",
        ),
        retry_policy_file=_path(conf, "retry_policy_file"),
    )


def _limit(conf: Any, key: str, *, fallback: str) -> int:
    allowed = "a whole number: 0 for none, -1 for no limit, or how many"
    return _number(int, conf, UPSTREAM_SECTION, key, -1, allowed=allowed, fallback=fallback)


def _path(conf: Any, key: str) -> Path | None:
    text = conf.get(OWN_SECTION, key, fallback="").strip()
    return Path(text).expanduser() if text else None


def _number(
    kind: Callable[[str], Number],
    conf: Any,
    section: str,
    key: str,
    minimum: Number,
    *,
    allowed: str,
    **options: str,
) -> Number:
    text = conf.get(section, key, **options)
    try:
        value = kind(text)
    except (TypeError, ValueError):
        value = None
    if value is None or not minimum <= value < math.inf:  # which is also false of "nan"
        raise AirflowConfigException(f"[{section}] {key} = {text!r} cannot be used; allowed is {allowed}")
    return value
