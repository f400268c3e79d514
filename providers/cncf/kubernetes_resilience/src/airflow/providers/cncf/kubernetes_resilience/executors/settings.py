# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The configuration that the executor reads, once, when it starts."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf as airflow_conf
from airflow.exceptions import AirflowConfigException

from airflow.providers.cncf.kubernetes_resilience.executors.policy_settings import (
    OWN_SECTION,
    UPSTREAM_SECTION,
    OptionError,
    PolicySettings,
    read_limit,
    read_number,
    read_policy_settings,
    read_seconds,
)
from airflow_resilience.outages import OutageLimits

if TYPE_CHECKING:
    from airflow.providers.cncf.kubernetes_resilience.pods.api.transport import RequestTimeout

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
PUBLISH_RETRIES = "task_publish_max_retries"
REQUEST_ARGUMENTS = "kube_client_request_args"
"""Of this option only :data:`REQUEST_TIMEOUT` has a meaning here."""
REQUEST_TIMEOUT = "_request_timeout"

_SWITCH = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
"""The words that Airflow's own options have for yes and no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(PolicySettings):
    """The checked configuration of the executor."""

    publish_retries: int | None
    """``[kubernetes_executor] task_publish_max_retries``: repetitions of a create call; -1 for no limit, None
    if not set."""
    api_concurrency: int
    """``[kubernetes_resilience] api_concurrency``: changing requests under way at one time."""
    watch_inactivity_timeout: float
    """``[kubernetes_resilience] watch_inactivity_timeout``, seconds."""
    request_timeout: RequestTimeout | None
    """``_request_timeout`` of ``[kubernetes_executor] kube_client_request_args``; None if there is none."""
    unschedulable_timeout: float
    """``[kubernetes_resilience] unschedulable_timeout``, seconds; 0 for never."""
    pending_timeout: float
    """``[kubernetes_resilience] pending_timeout``, seconds; 0 for never."""
    scheduling_gate_timeout: float
    """``[kubernetes_resilience] scheduling_gate_timeout``, seconds."""
    outage_limits: OutageLimits
    """``[kubernetes_resilience] outage_threshold``, and ``outage_max_wait`` in seconds."""
    node_suspect_timeout: float
    """``[kubernetes_resilience] node_suspect_timeout``, seconds; 0 for never."""
    worker_log_as_termination_message: bool
    """``[kubernetes_resilience] worker_log_as_termination_message``: whether the last lines of a failed
    worker are its container's termination message. A policy in the pod overrides the setting."""


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
    try:
        return _read(conf)
    except OptionError as error:
        raise AirflowConfigException(str(error)) from error


@contextmanager
def naming_the_team(name: str | None) -> Iterator[None]:
    """
    Have the message about a configured value name the team that it is configured for.

    :param name: None if the executor is not a team's
    """
    try:
        yield
    except AirflowConfigException as error:
        if name:
            raise AirflowConfigException(f"Team {name}: {error}") from error
        raise


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


def _read(conf: Any) -> Settings:
    return Settings(
        **asdict(read_policy_settings(conf)),
        publish_retries=_publish_retries(conf),
        api_concurrency=read_number(
            int, conf, OWN_SECTION, "api_concurrency", 1, allowed="a whole number, 1 or more"
        ),
        watch_inactivity_timeout=read_seconds(
            conf,
            "watch_inactivity_timeout",
            f"a number of seconds, {SHORTEST_WATCH_INACTIVITY:g} or more",
            SHORTEST_WATCH_INACTIVITY,
        ),
        unschedulable_timeout=_seconds(conf, "unschedulable_timeout", "0 for no limit"),
        pending_timeout=_seconds(conf, "pending_timeout", "0 for no limit"),
        scheduling_gate_timeout=_seconds(conf, "scheduling_gate_timeout", "0 for none"),
        outage_limits=OutageLimits(
            threshold=read_number(
                int, conf, OWN_SECTION, "outage_threshold", 0, allowed="a whole number, or 0 for never"
            ),
            max_wait=_seconds(conf, "outage_max_wait", "0 to hold nothing"),
        ),
        node_suspect_timeout=_seconds(conf, "node_suspect_timeout", "0 to suspect none"),
        worker_log_as_termination_message=_switch(conf, "worker_log_as_termination_message"),
        request_timeout=_request_timeout(conf),
    )


def _seconds(conf: Any, key: str, zero: str) -> float:
    return read_seconds(conf, key, f"a number of seconds, or {zero}")


def _publish_retries(conf: Any) -> int | None:
    # Airflow's own answer does not tell a value from the official provider's default.
    team = getattr(conf, "team_name", None)
    section = f"{team}={UPSTREAM_SECTION}" if team else UPSTREAM_SECTION
    variable = f"AIRFLOW__{section.replace('=', '___')}__{PUBLISH_RETRIES}".upper()
    if variable in os.environ or ConfigParser.has_option(airflow_conf, section, PUBLISH_RETRIES):
        return read_limit(conf, UPSTREAM_SECTION, PUBLISH_RETRIES)
    return None


def _request_timeout(conf: Any) -> RequestTimeout | None:
    text = _text(conf, REQUEST_ARGUMENTS)
    try:
        value = json.loads(text or "{}").get(REQUEST_TIMEOUT)
        if value is None:
            return None
        seconds = tuple(map(float, value)) if isinstance(value, list) else (float(value),)
    except (AttributeError, TypeError, ValueError):
        seconds = ()
    if all(0 < each < math.inf for each in seconds):
        match seconds:
            case (total,):
                return total
            case (to_connect, to_read):
                return to_connect, to_read
    raise OptionError(
        f"[{UPSTREAM_SECTION}] {REQUEST_ARGUMENTS} = {text!r} cannot be used; allowed is a JSON object, in"
        f' which "{REQUEST_TIMEOUT}" is a number of seconds, or a list of two: to connect, and between reads'
    )


def _switch(conf: Any, key: str) -> bool:
    # Not getboolean(): its error does not name what was found in a team's configuration.
    text = conf.get(OWN_SECTION, key)
    value = _SWITCH.get(text.strip().lower())
    if value is None:
        raise OptionError(f"[{OWN_SECTION}] {key} = {text!r} cannot be used; allowed is True or False")
    return value
