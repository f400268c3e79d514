# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Logs of a task from its worker pods, while they exist.

The API server's processes call this on an executor that was never started; everything is read with a
client of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator
from airflow.utils.log.logging_mixin import remove_escape_codes

from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import newest_first
from airflow.providers.cncf.kubernetes_resilience.executors.upstream import CLIENT_TIMEOUT
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import error_from_status
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, read_pod

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance
    from kubernetes.client import CoreV1Api


def read_pod_logs(
    ti: TaskInstance, try_number: int, *, namespace: str, lines: int, client: CoreV1Api
) -> tuple[list[str], list[Iterator[str]]]:
    """
    Read the logs of a try's worker pods.

    The current launch's log comes first and as it is; those of earlier launches that were kept follow,
    under a heading each and with the pod's name before every line, so that Airflow's merging of logs by
    time leaves them in their place.

    :param namespace: where the task's pods are created
    :param lines: how many lines to read of each pod, from its end
    :return: messages about where the log comes from, and the log as one stream
    """
    messages = [f"Attempting to fetch logs from pod {ti.hostname or ''} through kube API"]
    try:
        launches = _list_launches(ti, try_number, namespace, client)
    except Exception as error:  # noqa: BLE001 - the page that shows the log shows why there is none
        return [*messages, f"Reading from k8s pod logs failed: {_said(error)}"], []
    if not launches:
        return [*messages, f"Reading from k8s pod logs failed: no pod of {ti} exists"], []
    log: list[str] = []
    for index, pod in enumerate(launches):
        try:
            text = _read(pod, lines, client)
        except Exception as error:  # noqa: BLE001 - the other pods' logs are worth showing all the same
            messages.append(f"Reading the log of pod {pod.ref} failed: {_said(error)}")
            continue
        messages.append(f"Found logs of pod {pod.ref} (launch {pod.launch_number}) through kube API")
        log += text if index == 0 else _as_earlier(pod, text)
    return messages, [iter(log)] if log else []


def _list_launches(ti: TaskInstance, try_number: int, namespace: str, client: CoreV1Api) -> list[PodFacts]:
    # Not by scheduler, as the official executor does: a pod that was adopted has another one's label.
    selector = PodGenerator.build_selector_for_k8s_executor_pod(  # type: ignore[no-untyped-call]
        dag_id=ti.dag_id,
        task_id=ti.task_id,
        try_number=try_number,
        map_index=ti.map_index,
        run_id=ti.run_id,
    )
    found = client.list_namespaced_pod(
        namespace=namespace, label_selector=selector, _request_timeout=CLIENT_TIMEOUT
    ).items
    pods = [read_pod(client.api_client.sanitize_for_serialization(pod)) for pod in found]
    return newest_first(pods, ti.hostname)


def _read(pod: PodFacts, lines: int, client: CoreV1Api) -> list[str]:
    response = client.read_namespaced_pod_log(
        name=pod.ref.name,
        namespace=pod.ref.namespace,
        container=pod.worker_name,
        follow=False,
        tail_lines=lines,
        _preload_content=False,
        _request_timeout=CLIENT_TIMEOUT,
    )
    return [remove_escape_codes(line.decode(errors="replace")) for line in response]


def _said(error: Exception) -> str:
    """Return what the API server has said: the client's own text has all headers of the answer before it."""
    from kubernetes.client import ApiException  # noqa: PLC0415 - no scheduler needs it

    if not isinstance(error, ApiException):
        return str(error)
    try:
        body = json.loads(error.body or "")
    except ValueError:
        body = None
    return str(error_from_status(error.status, body, text=error.reason or ""))


def _as_earlier(pod: PodFacts, text: list[str]) -> Iterator[str]:
    yield f"--- launch {pod.launch_number}, pod {pod.ref.name} ---"
    for line in text:
        yield f"{pod.ref.name} | {line}"
