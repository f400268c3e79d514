# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The configuration that the executor reads, once, when it starts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from airflow.exceptions import AirflowConfigException

from airflow_resilience.context import StateChangeReason
from airflow_resilience.retry_policy.infrastructure import BUDGET_OPTION, DELAY_OPTION, REASONS_OPTION

UPSTREAM_SECTION = "kubernetes_executor"
OWN_SECTION = "kubernetes_resilience"
EXCLUDED_REASONS = "pod_launch_failure_excluded_container_reasons"

SHORTEST_WATCH_INACTIVITY = 90.0
"""Seconds. The API server ends a watch at 0.4 of the limit or later; less would be reconnects."""

WITHOUT_MEANING: Mapping[str, str] = {
    "worker_pods_creation_batch_size": "1",
    "async_pod_creation": "False",
    "pod_creation_max_concurrency": "0",
    "api_client_retry_configuration": "",
    "enable_tcp_keepalive": "True",
    "tcp_keep_idle": "120",
    "tcp_keep_intvl": "30",
    "tcp_keep_cnt": "6",
}
"""
Options of the official executor that mean nothing here, with their defaults. Pods are created concurrently,
as many at a time as ``api_concurrency`` says, and the client of Kubernetes is another one.
"""
REQUEST_ARGUMENTS = "kube_client_request_args"
"""Of this option only :data:`REQUEST_TIMEOUT` has a meaning here."""
REQUEST_TIMEOUT = "_request_timeout"

_SWITCH = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
"""The words that Airflow's own options have for yes and no."""

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
    infrastructure_retry_budget: int
    """``[kubernetes_resilience] infrastructure_retry_budget``: how often a running task may be launched again
    in one try; 0 for never, -1 for no limit."""
    infrastructure_retry_delay: float
    """``[kubernetes_resilience] infrastructure_retry_delay``, seconds."""
    infrastructure_retry_reasons: frozenset[StateChangeReason]
    """``[kubernetes_resilience] infrastructure_retry_reasons``: what of category INFRASTRUCTURE that is
    for, without a rule that says so."""
    worker_log_as_termination_message: bool
    """``[kubernetes_resilience] worker_log_as_termination_message``: whether the last lines of a worker that
    fails are its container's termination message, unless its pod states a policy of its own."""


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
        launch_failure_retries=_limit(conf, UPSTREAM_SECTION, "pod_launch_failure_retries", fallback="1"),
        excluded_container_reasons=_words(excluded),
        publish_retries=_limit(conf, UPSTREAM_SECTION, "task_publish_max_retries", fallback="0"),
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
        infrastructure_retry_budget=_limit(conf, OWN_SECTION, BUDGET_OPTION),
        infrastructure_retry_delay=_number(
            float,
            conf,
            OWN_SECTION,
            DELAY_OPTION,
            0.0,
            allowed="a number of seconds, 0 or more",
        ),
        infrastructure_retry_reasons=_reasons(conf, REASONS_OPTION),
        worker_log_as_termination_message=_switch(conf, "worker_log_as_termination_message"),
    )


def find_without_meaning(conf: Any) -> list[str]:
    """
    Return what is configured, for the official executor, and has no effect in this one.

    :param conf: Airflow's configuration, or a team's (``ExecutorConf``)
    """
    found = [
        f"{key} = {value}"
        for key, default in WITHOUT_MEANING.items()
        if (value := _text(conf, key)).lower() != (default.lower() if value else "")
    ]
    arguments = json.loads(_text(conf, REQUEST_ARGUMENTS) or "{}")
    found += [f"{REQUEST_ARGUMENTS}: {name}" for name in arguments if name != REQUEST_TIMEOUT]
    return found


def _text(conf: Any, key: str) -> str:
    return (conf.get(UPSTREAM_SECTION, key, fallback=None) or "").strip()


def _limit(conf: Any, section: str, key: str, **options: str) -> int:
    allowed = "a whole number: 0 for none, -1 for no limit, or how many"
    return _number(int, conf, section, key, -1, allowed=allowed, **options)


def _words(text: str | None) -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, (text or "").split(","))))


def _reasons(conf: Any, key: str) -> frozenset[StateChangeReason]:
    text = conf.get(OWN_SECTION, key)
    words = _words(text)
    if unknown := sorted(words - StateChangeReason.__members__.keys()):
        raise AirflowConfigException(
            f"[{OWN_SECTION}] {key} = {text!r} cannot be used: {', '.join(unknown)} is not among what is"
            f" allowed, which is a list, with commas, of {', '.join(StateChangeReason)}"
        )
    return frozenset(map(StateChangeReason, words))


def _path(conf: Any, key: str) -> Path | None:
    text = conf.get(OWN_SECTION, key, fallback="").strip()
    return Path(text).expanduser() if text else None


def _switch(conf: Any, key: str) -> bool:
    # Not getboolean(): its error does not name what was found in a team's configuration.
    text = conf.get(OWN_SECTION, key)
    value = _SWITCH.get(text.strip().lower())
    if value is None:
        raise AirflowConfigException(
            f"[{OWN_SECTION}] {key} = {text!r} cannot be used; allowed is True or False"
        )
    return value


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
