# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import functools

import pytest
import yaml
from airflow.jobs.job import Job
from sqlalchemy import update

from airflow.providers.cncf.kubernetes_resilience.executors import assembly, kubernetes_executor
from cluster_lab.airflow_fixtures import make_scheduler_job

from ...support.cluster import TEMPLATE, Cluster
from ...support.harness import Clock, FakeRuntime, Harness


@pytest.fixture
def cluster() -> Cluster:
    """The pods of all executors of a test."""
    return Cluster()


@pytest.fixture
def start(session, scheduler_job_id, cluster, monkeypatch, tmp_path):
    """Give a function that starts an executor with some configuration, by ``SECTION__KEY``."""
    monkeypatch.setattr(assembly, "KubernetesRuntime", functools.partial(FakeRuntime, cluster=cluster))
    template = tmp_path / "template.yaml"
    template.write_text(yaml.safe_dump(TEMPLATE))
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE", str(template))

    def make(job_id: int | None = None, **config: str) -> Harness:
        for name, value in config.items():
            monkeypatch.setenv(f"AIRFLOW__{name}", value)
        executor = kubernetes_executor.KubernetesExecutor()
        executor._clock = clock = Clock()
        executor.job_id = job_id or scheduler_job_id
        executor.start()
        return Harness(executor, clock, session)

    return make


@pytest.fixture
def harness(start) -> Harness:
    """Give an executor with the default configuration."""
    return start()


@pytest.fixture
def with_policies(tmp_path):
    """Give a function that returns the configuration for the text of a policy file."""

    def make(text: str) -> dict[str, str]:
        file = tmp_path / "policies.yaml"
        file.write_text(text)
        return {"KUBERNETES_RESILIENCE__RETRY_POLICY_FILE": str(file)}

    return make


@pytest.fixture
def ti(queued_ti):
    """Give a task instance that is queued."""
    return queued_ti()


@pytest.fixture
def launched(harness, queued_ti):
    """Give a task instance and its pod."""
    ti = queued_ti()
    return ti, harness.launch(ti)


@pytest.fixture
def called(harness, queued_ti):
    """Give a task instance and the create call for its pod, which is open."""
    ti = queued_ti()
    return ti, harness.call_for(ti)


@pytest.fixture
def begun(harness, queued_ti):
    """Give a task instance that runs, and its pod."""
    ti = queued_ti()
    return ti, harness.run(ti)


@pytest.fixture
def running(queued_ti):
    """Give a function that brings a task instance to run in a pod."""

    def make(harness, **options):
        ti = queued_ti(**options)
        return ti, harness.run(ti)

    return make


@pytest.fixture
def successor(start, session):
    """Give a function that starts the executor of another scheduler; those before it are dead."""

    def make(**config: str) -> Harness:
        session.execute(update(Job).values(state="failed"))
        return start(make_scheduler_job(session), **config)

    return make
