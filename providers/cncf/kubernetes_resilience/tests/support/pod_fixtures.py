# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Worker pods as ``kubectl get -o yaml`` shows them, from ``fixtures/pods.yaml``.

Each says what happened (``about``), and then: ``expects``, the row of the table; ``container``, the one that
decides; ``seen``, how the executor came to ask, unless the pod has failed; ``phase``, how far the task had
come, if it had begun; ``pod``, in what it is not the first pod of the file. What all statuses of containers
have is added here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    DELETION_OVERDUE,
    HEARTBEAT_TIMEOUT,
    PodFailure,
    find_expired_token,
    find_failure,
    find_no_pod,
    find_obstacle,
    find_silent_exit,
    find_unreported_end,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, read_pod
from airflow_resilience.retry_policy.evidence import Phase
from cluster_lab.apiserver.patches import STRATEGIC_MERGE, apply_patch

FIXTURES = Path(__file__).parent / "fixtures"
STARTING, PODS = yaml.safe_load_all((FIXTURES / "pods.yaml").read_text())

_TIMES = {
    "waiting": {},
    "running": {"startedAt": "2026-03-02T21:18:06Z"},
    "terminated": {"startedAt": "2026-03-02T21:18:06Z", "finishedAt": "2026-03-02T21:18:44Z"},
}
"""Of a container, by its state."""

GIVEN_UP = (
    "CreateContainerConfigError",
    "ErrImagePull",
    "CreateContainerError",
    "ImageInspectError",
    "InvalidImageName",
)
"""Upstream's default of ``worker_pod_pending_fatal_container_state_reasons``."""


def _not_created(facts: PodFacts, reason: str, message: str) -> PodFailure:
    return find_no_pod(facts.ref.namespace, facts.ref.name, reason, message=message)


NO_SERVICE_ACCOUNT = (
    'not created: 403 Forbidden: pods "reports-render-0b1c7a52" is forbidden: error looking up service '
    'account airflow/reports: serviceaccount "reports" not found'
)

FINDERS = {
    "failed": find_failure,
    "gone": lambda facts: find_failure(facts, gone=True),
    "given-up": lambda facts: find_failure(facts, given_up_reasons=GIVEN_UP),
    "obstacle": find_obstacle,
    "overdue": partial(PodFailure, DELETION_OVERDUE, alive=True),
    "silent-exit": find_silent_exit,
    "unreported-end": find_unreported_end,
    "heartbeat-timeout": partial(PodFailure, HEARTBEAT_TIMEOUT, alive=True),
    "expired-token": lambda facts: find_expired_token(find_failure(facts)),
    "creation-refused": lambda facts: _not_created(facts, "CreationRefused", "403 Forbidden: pods"),
    "no-service-account": lambda facts: _not_created(facts, "CreationRefused", NO_SERVICE_ACCOUNT),
    "creation-unanswered": lambda facts: _not_created(facts, "CreationUnanswered", "302: <html>"),
    "creation-forbidden": lambda facts: _not_created(facts, "CreationForbidden", "422 Invalid: image"),
    "creation-conflict": lambda facts: _not_created(facts, "CreationConflict", "409 Conflict: quota"),
    "creation-failed": lambda facts: _not_created(facts, "CreationFailed", "500: request is too large"),
    "quota-exceeded": lambda facts: _not_created(facts, "QuotaExceeded", "403 Forbidden: exceeded quota"),
}


@dataclass(frozen=True)
class PodFixture:
    """One file."""

    name: str
    facts: PodFacts
    expects: str
    container: str | None
    seen: str
    phase: Phase

    @property
    def failure(self) -> PodFailure:
        failure = FINDERS[self.seen](self.facts)
        assert failure is not None, f"{self.name} has not failed"
        return failure


def manifest_of(name: str) -> dict[str, Any]:
    manifest = apply_patch(STRATEGIC_MERGE, STARTING, PODS[name].get("pod", {}))
    for kind in ("containerStatuses", "initContainerStatuses"):
        manifest["status"][kind] = [_status_of(item) for item in manifest["status"].get(kind, ())]
    return manifest


def _status_of(container: dict[str, Any]) -> dict[str, Any]:
    is_running = "running" in container["state"]
    state = {name: _TIMES[name] | detail for name, detail in container["state"].items()}
    image = STARTING["spec"]["containers"][0]["image"]
    known = {"image": image, "ready": is_running, "restartCount": 0, "started": is_running}
    return known | container | {"state": state}


def read_fixture(name: str) -> PodFixture:
    head = PODS[name]
    phase = Phase(head.get("phase", Phase.LAUNCH))
    facts = read_pod(manifest_of(name))
    return PodFixture(name, facts, head["expects"], head.get("container"), head.get("seen", "failed"), phase)


def read_worker_log(name: str) -> str:
    """Return what the kubelet keeps of the log of a real worker: its last 80 lines, or 2048 bytes."""
    return (FIXTURES / "worker_logs" / f"{name}.txt").read_text()


ALL = [read_fixture(name) for name in PODS]
