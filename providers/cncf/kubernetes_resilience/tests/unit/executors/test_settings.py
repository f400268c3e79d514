# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which values can be configured, and how those that cannot are refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from airflow.configuration import conf
from airflow.exceptions import AirflowConfigException
from airflow.version import version as airflow_version

from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor
from airflow.providers.cncf.kubernetes_resilience.executors.settings import (
    Settings,
    find_without_meaning,
    read_settings,
)
from airflow_resilience.context import StateChangeReason
from airflow_resilience.decision import LONGEST_DELAY
from airflow_resilience.outages import OutageLimits

AIRFLOW = tuple(map(int, airflow_version.split(".")[:2]))
NEEDS_TEAMS = pytest.mark.skipif(AIRFLOW < (3, 2), reason="Airflow 3.1 has no teams")

RETRIES = ("kubernetes_executor", "pod_launch_failure_retries")
EXCLUDED = ("kubernetes_executor", "pod_launch_failure_excluded_container_reasons")
PUBLISH = ("kubernetes_executor", "task_publish_max_retries")
CONCURRENCY = ("kubernetes_resilience", "api_concurrency")
POLICIES = ("kubernetes_resilience", "retry_policy_file")
PENDING = ("kubernetes_resilience", "pending_timeout")
SUSPECT = ("kubernetes_resilience", "node_suspect_timeout")
GATE = ("kubernetes_resilience", "scheduling_gate_timeout")
UNSCHEDULABLE = ("kubernetes_resilience", "unschedulable_timeout")
BUDGET = ("kubernetes_resilience", "infrastructure_retry_budget")
DELAY = ("kubernetes_resilience", "infrastructure_retry_delay")
REASONS = ("kubernetes_resilience", "infrastructure_retry_reasons")
REQUESTS = ("kubernetes_executor", "kube_client_request_args")
WORKER_LOG = ("kubernetes_resilience", "worker_log_as_termination_message")
INACTIVITY = ("kubernetes_resilience", "watch_inactivity_timeout")


def read(monkeypatch: pytest.MonkeyPatch, option: tuple[str, str], value: str) -> Settings:
    section, key = option
    monkeypatch.setenv(f"AIRFLOW__{section.upper()}__{key.upper()}", value)
    return read_settings(conf)


def test_defaults_are_the_documented_ones() -> None:
    assert read_settings(conf) == Settings(
        launch_failure_retries=1,
        excluded_container_reasons=frozenset({"Error"}),
        publish_retries=None,
        api_concurrency=32,
        watch_inactivity_timeout=150.0,
        unschedulable_timeout=0.0,
        pending_timeout=0.0,
        scheduling_gate_timeout=86400.0,
        retry_policy_file=None,
        infrastructure_retry_budget=0,
        infrastructure_retry_delay=10.0,
        infrastructure_retry_reasons=frozenset(
            {
                StateChangeReason.WORKER_TERMINATION,
                StateChangeReason.WORKER_LOST,
                StateChangeReason.RESOURCE_EXHAUSTION,
                StateChangeReason.DB_CONNECTION_ERROR,
            }
        ),
        outage_limits=OutageLimits(threshold=3, max_wait=3600.0),
        node_suspect_timeout=900.0,
        worker_log_as_termination_message=True,
        request_timeout=None,
    )


@pytest.mark.parametrize(
    ("option", "field", "value", "expected"),
    [
        (RETRIES, "launch_failure_retries", "0", 0),
        (RETRIES, "launch_failure_retries", "-1", -1),
        (RETRIES, "launch_failure_retries", " 12 ", 12),
        (PUBLISH, "publish_retries", "0", 0),
        (PUBLISH, "publish_retries", "-1", -1),
        (PUBLISH, "publish_retries", "5", 5),
        (CONCURRENCY, "api_concurrency", "1", 1),
        (REQUESTS, "request_timeout", "", None),
        (REQUESTS, "request_timeout", "{}", None),
        (REQUESTS, "request_timeout", '{"_request_timeout": null}', None),
        (REQUESTS, "request_timeout", '{"_request_timeout": 5}', 5.0),
        (REQUESTS, "request_timeout", '{"_request_timeout": [3, 60.5]}', (3.0, 60.5)),
        (INACTIVITY, "watch_inactivity_timeout", "90", 90.0),
        (INACTIVITY, "watch_inactivity_timeout", "120.5", 120.5),
        (UNSCHEDULABLE, "unschedulable_timeout", "300", 300.0),
        (PENDING, "pending_timeout", "480", 480.0),
        (GATE, "scheduling_gate_timeout", "0", 0.0),
        (BUDGET, "infrastructure_retry_budget", "4", 4),
        (BUDGET, "infrastructure_retry_budget", "-1", -1),
        (DELAY, "infrastructure_retry_delay", "0", 0.0),
        (DELAY, "infrastructure_retry_delay", "2.5", 2.5),
        (REASONS, "infrastructure_retry_reasons", "", frozenset()),
        (
            REASONS,
            "infrastructure_retry_reasons",
            " WORKER_LOST,, START_ERROR ",
            frozenset({StateChangeReason.WORKER_LOST, StateChangeReason.START_ERROR}),
        ),
        (POLICIES, "retry_policy_file", "  ", None),
        (POLICIES, "retry_policy_file", " /etc/policies.yaml ", Path("/etc/policies.yaml")),
        (POLICIES, "retry_policy_file", "~/policies.yaml", Path.home() / "policies.yaml"),
        (WORKER_LOG, "worker_log_as_termination_message", "False", False),
        (WORKER_LOG, "worker_log_as_termination_message", " true ", True),
        (EXCLUDED, "excluded_container_reasons", "", frozenset()),
        (EXCLUDED, "excluded_container_reasons", "Error", frozenset({"Error"})),
        (EXCLUDED, "excluded_container_reasons", " Error,, OOMKilled ,", frozenset({"Error", "OOMKilled"})),
    ],
)
def test_value_is_read(
    monkeypatch: pytest.MonkeyPatch, option: tuple[str, str], field: str, value: str, expected: Any
) -> None:
    assert getattr(read(monkeypatch, option, value), field) == expected


@pytest.mark.parametrize(
    ("option", "values", "allowed"),
    [
        (RETRIES, ["", "many", "1.5", "-2", "inf", "None"], "a whole number: 0 for none, -1 for no limit"),
        (PUBLISH, ["", "x", "-2"], "a whole number: 0 for none, -1 for no limit"),
        (CONCURRENCY, ["", "0", "-1", "2.5", "all"], "a whole number, 1 or more"),
        (
            INACTIVITY,
            ["", "0", "89.9", "-150", "nan", "inf", "1e999", "2 minutes"],
            "a number of seconds, 90 or more",
        ),
        (UNSCHEDULABLE, ["", "-1", "nan", "inf", "5m"], "a number of seconds, or 0 for no limit"),
        (PENDING, ["", "-1", "nan", "inf", "5m"], "a number of seconds, or 0 for no limit"),
        (GATE, ["", "-1", "nan", "inf", "1d"], "a number of seconds, or 0 for none"),
        (BUDGET, ["", "three", "1.5", "-2"], "a whole number: 0 for none, -1 for no limit"),
        (DELAY, ["", "-1", "nan", "inf", "10s"], "a number of seconds, 0 or more"),
        (
            REASONS,
            ["worker_lost", "WORKER_LOST;START_ERROR", "WORKER_LOST, OOMKilled", "*"],
            "of WORKER_TERMINATION, WORKER_LOST, RESOURCE_EXHAUSTION, DB_CONNECTION_ERROR, ",
        ),
        (WORKER_LOG, ["", "always", "2", "FallbackToLogsOnError"], "True or False"),
        (
            REQUESTS,
            [
                *("{", "[]", '"x"', '{"_request_timeout": "x"}', '{"_request_timeout": 0}'),
                *('{"_request_timeout": []}', '{"_request_timeout": [1, 2, 3]}', '{"_request_timeout": {}}'),
                *('{"_request_timeout": [1, NaN]}', '{"_request_timeout": [1, null]}'),
            ],
            "a number of seconds, or a list of two",
        ),
    ],
)
def test_value_that_cannot_be_used_is_named_with_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, option: tuple[str, str], values: list[str], allowed: str
) -> None:
    for value in values:
        with pytest.raises(AirflowConfigException) as raised:
            read(monkeypatch, option, value)
        message = str(raised.value)
        assert f"[{option[0]}] {option[1]} = {value!r}" in message
        assert allowed in message


def test_number_too_large_for_a_float_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, RETRIES, "1" + "0" * 400).launch_failure_retries == 10**400


@pytest.mark.parametrize(
    ("option", "field"),
    [
        (UNSCHEDULABLE, "unschedulable_timeout"),
        (PENDING, "pending_timeout"),
        (GATE, "scheduling_gate_timeout"),
        (SUSPECT, "node_suspect_timeout"),
        (DELAY, "infrastructure_retry_delay"),
        (INACTIVITY, "watch_inactivity_timeout"),
    ],
)
@pytest.mark.parametrize("value", ["1e12", "1e300"])
def test_time_that_no_date_can_be_away_is_a_year(
    monkeypatch: pytest.MonkeyPatch, option: tuple[str, str], field: str, value: str
) -> None:
    assert getattr(read(monkeypatch, option, value), field) == LONGEST_DELAY


def test_configuration_of_a_provider_that_lacks_the_options_has_upstream_defaults() -> None:
    class Older:
        """Knows nothing of the options that upstream has added in 10.20."""

        def get(self, section: str, key: str, **options: str) -> str:
            if section == "kubernetes_executor":
                return options["fallback"]
            return {REASONS[1]: "", WORKER_LOG[1]: "True"}.get(key, "100")

    settings = read_settings(Older())
    assert (settings.launch_failure_retries, settings.excluded_container_reasons) == (1, {"Error"})


def test_excluded_reasons_that_are_not_set_at_all_exclude_nothing() -> None:
    class Unset:
        """As a configuration answers for an option with an empty default."""

        def get(self, section: str, key: str, **options: str) -> str | None:
            answers = {EXCLUDED[1]: None, REQUESTS[1]: None, REASONS[1]: None, WORKER_LOG[1]: "True"}
            return answers.get(key, "100")

    assert read_settings(Unset()).excluded_container_reasons == frozenset()


@NEEDS_TEAMS
@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((RETRIES, "many"), (CONCURRENCY, "many"), (REQUESTS, "{"), (POLICIES, "/no/such/file")),
        (("kubernetes_executor", "delete_worker_pods"), "perhaps"),
        (("kubernetes_executor", "pod_creation_max_concurrency"), "many"),
    ],
)
def test_a_team_s_executor_reads_the_team_s_options_and_names_it(start, monkeypatch, option, value):
    section, key = option
    monkeypatch.setenv(f"AIRFLOW__{section.upper()}__{key.upper()}", "never read")
    KubernetesExecutor(team_name="blue")
    monkeypatch.setenv(f"AIRFLOW__BLUE___{section.upper()}__{key.upper()}", value)

    def start_executor() -> None:
        executor = KubernetesExecutor(team_name="blue")
        executor.job_id = 1
        executor.start()

    with pytest.raises(AirflowConfigException, match=r"^Team blue: [^:]") as refused:
        start_executor()
    assert all(part in str(refused.value) for part in (section, key, value))


@pytest.mark.parametrize("team", [None, pytest.param("blue", marks=NEEDS_TEAMS)])
def test_the_official_provider_s_default_does_not_count_as_set(team, monkeypatch):
    """Where ``task_publish_max_retries`` is 0, a conflict fails the task, and where nobody says so, not."""
    key = PUBLISH[1]
    assert conf.get(*PUBLISH) == "0"
    read_now = partial(read_settings, KubernetesExecutor(team_name=team).conf if team else conf)
    assert read_now().publish_retries is None
    section = f"{team}={PUBLISH[0]}" if team else PUBLISH[0]
    had_section = conf.has_section(section)
    if not had_section:
        conf.add_section(section)
    conf.set(section, key, "0")
    try:
        assert read_now().publish_retries == 0
        assert read_settings(conf).publish_retries == (None if team else 0)
    finally:
        conf.remove_option(section, key, remove_default=False)
        if not had_section:
            conf.remove_section(section)
    assert read_now().publish_retries is None
    monkeypatch.setenv(f"AIRFLOW__{f'{team}___' if team else ''}{PUBLISH[0]}__{key}".upper(), "3")
    assert read_now().publish_retries == 3
    assert read_settings(conf).publish_retries == (None if team else 3)


def test_nothing_was_started_if_a_value_cannot_be_used(start, monkeypatch):
    monkeypatch.setenv("AIRFLOW__KUBERNETES_RESILIENCE__API_CONCURRENCY", "0")
    executor = KubernetesExecutor()
    executor.job_id = 1
    with pytest.raises(AirflowConfigException):
        executor.start()
    assert not executor._is_started
    executor.end()


# ---------------------------------------------------------------------- options of the official executor


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("worker_pods_creation_batch_size", "16", ["worker_pods_creation_batch_size = 16"]),
        ("worker_pods_creation_batch_size", "1", []),
        ("async_pod_creation", "true", ["async_pod_creation = true"]),
        ("async_pod_creation", "false", []),
        ("enable_tcp_keepalive", "False", ["enable_tcp_keepalive = False"]),
        ("api_client_retry_configuration", '{"total": 3}', ['api_client_retry_configuration = {"total": 3}']),
        ("kube_client_request_args", '{"_request_timeout": [30, 60]}', []),
        (
            "kube_client_request_args",
            '{"_request_timeout": 30, "pretty": true}',
            ["kube_client_request_args: pretty"],
        ),
    ],
)
def test_what_is_configured_in_vain(
    monkeypatch: pytest.MonkeyPatch, key: str, value: str, found: list[str]
) -> None:
    monkeypatch.setenv(f"AIRFLOW__KUBERNETES_EXECUTOR__{key.upper()}", value)
    assert find_without_meaning(conf) == found
