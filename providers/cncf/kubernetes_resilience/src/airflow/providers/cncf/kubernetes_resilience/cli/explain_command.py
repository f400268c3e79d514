# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
``airflow kubernetes-resilience explain``: the decision about a pod, and its reasons.

A pod of the cluster is read from the API server, and facts about its task from the metadata database.
"""

from __future__ import annotations

import json
from argparse import Namespace
from itertools import takewhile

from airflow.configuration import conf
from airflow.models.taskinstance import TaskInstance
from airflow.providers.cncf.kubernetes.kube_config import KubeConfig
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from kubernetes.client import ApiException
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from urllib3.exceptions import HTTPError

from airflow.providers.cncf.kubernetes_resilience.cli import answers
from airflow.providers.cncf.kubernetes_resilience.cli.errors import CommandError
from airflow.providers.cncf.kubernetes_resilience.cli.explanation import Circumstances, from_pod
from airflow.providers.cncf.kubernetes_resilience.cli.manifests import from_file, read_manifest
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import (
    Place,
    locate,
    task_key,
    ti_id_of,
)
from airflow.providers.cncf.kubernetes_resilience.executors.settings import REQUEST_TIMEOUT
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.task_instances import read_profiles
from airflow.providers.cncf.kubernetes_resilience.executors.upstream import CLIENT_TIMEOUT, make_client
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts
from airflow_resilience import ledger
from airflow_resilience.decision import NO_POLICY, Decision
from airflow_resilience.keys import is_task_instance
from airflow_resilience.ledger_entries import LaunchHistory
from airflow_resilience.retry_policy.evidence import Phase

_KNOWN = "The task, and what was decided about earlier failures of the try, are from the metadata database."


def explain(args: Namespace) -> int:
    """Explain each pod that was asked about."""
    return answers.explain_all(_find_pods(args), conf, args)


def _find_pods(args: Namespace) -> list[tuple[PodFacts, Circumstances]]:
    if (file := answers.find_file(args)) is not None:
        if args.namespace:
            raise CommandError("--namespace is for a pod of the cluster, and a manifest has its own")
        return [(facts, from_pod(facts)) for facts in from_file(file)]
    facts = from_cluster(args.name, args.namespace, KubeConfig())
    return [(facts, from_database(facts, Phase(args.phase) if args.phase else None))]


def from_cluster(name: str, namespace: str | None, kube_config: KubeConfig) -> PodFacts:
    """
    Ask the API server for one pod.

    :param namespace: None for that of the executor's pods
    :raises CommandError: if the pod cannot be read
    """
    namespace = namespace or kube_config.executor_namespace
    # The other arguments have no effect in the scheduler either, and this call does not accept each of them.
    limit = kube_config.kube_client_request_args.get(REQUEST_TIMEOUT) or CLIENT_TIMEOUT
    what = f"pod {namespace}/{name}"
    try:
        response = make_client(None).read_namespaced_pod(
            name, namespace, _preload_content=False, _request_timeout=limit
        )
        manifest = json.loads(response.data)
    except ApiException as error:
        raise CommandError(f"{what}: {error.status} {error.reason}") from error
    except (HTTPError, OSError) as error:
        raise CommandError(f"the Kubernetes API server does not answer: {error}") from error
    except Exception as error:
        # A kubeconfig, a client of the deployment's own, or a proxy may cause any exception.
        raise CommandError(f"{what} cannot be read: {type(error).__name__}: {error}") from error
    return read_manifest(manifest, what)


def from_database(facts: PodFacts, phase: Phase | None = None) -> Circumstances:
    """
    Read the task instance of a pod and its ledger. Without these, read the pod's annotations.

    :param phase: phase of the task; None for the phase in the database
    """
    key, ti_id, ti = task_key(facts.annotations), ti_id_of(facts), TaskInstance
    if key is None or ti_id is None:
        return from_pod(facts, "The pod does not say which task instance it is of")
    try:
        with create_session() as session:
            present = session.execute(
                select(ti.id, ti.try_number, ti.state, ti.hostname).where(*is_task_instance(ti, key))
            ).one_or_none()
            now = str(present.id) if present and present.try_number == key.try_number else ti_id
            whole_try = ledger.read_histories({key: now}, session=session)[key].whole_try
            of_pod = ledger.read_histories({key: ti_id}, until=facts.ref.uid, session=session)[key]
            # A task instance that runs again after a loss has another UUID than its earlier pods.
            earlier_ids = {entry.ti_id for entry in whole_try.entries}
            profile = read_profiles([now], session=session).get(now) if ti_id in {now, *earlier_ids} else None
    except SQLAlchemyError as error:
        return from_pod(facts, f"The metadata database does not answer ({type(error).__name__})")
    if profile is None:
        return from_pod(facts, "The pod's task instance is not in the metadata database any more")
    runs = present is not None and ti_id == now and present.state == TaskInstanceState.RUNNING
    hostname = present.hostname if present else None
    host = locate(hostname, name=facts.ref.name, addresses=facts.addresses)
    entry = whole_try.of_worker(facts.ref.uid)
    # A pod that was given up may have started after all. A pod that had ended has run nothing of its task.
    if runs and host is Place.HERE and entry is not None and entry.was_pending:
        entry = None
    if phase is None:
        phase = entry.phase if entry else Phase.EXECUTION if runs else None
    elif entry and entry.phase is not phase:
        entry = None
    return Circumstances(
        profile=profile,
        earlier=(
            _decisions_before(facts, whole_try, Phase.EXECUTION)
            if phase is Phase.EXECUTION
            else _decisions_before(facts, of_pod.launches, Phase.LAUNCH)
        ),
        source=_KNOWN,
        phase=phase,
        recorded=entry.reason if entry else None,
        decided=entry.decision if entry and entry.decision.policy == NO_POLICY else None,
    )


def _decisions_before(facts: PodFacts, history: LaunchHistory, phase: Phase) -> list[Decision]:
    before = takewhile(lambda entry: entry.worker_uid != facts.ref.uid, history.entries)
    return [entry.decision for entry in before if entry.phase is phase]
