# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_commands.py. What happens to their pods is in faults.yaml."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.providers.cncf.kubernetes.utils.xcom_sidecar import add_xcom_sidecar
from airflow.sdk import DAG
from kubernetes.client import (
    V1ConfigMapVolumeSource,
    V1Container,
    V1EmptyDirVolumeSource,
    V1EnvVar,
    V1Pod,
    V1PodSpec,
    V1ResourceRequirements,
    V1Volume,
    V1VolumeMount,
)

from testbed.work import Work, held_pod, light_pod

# Nothing of it is due any more.
with DAG(
    "backfilled",
    schedule="@yearly",
    start_date=datetime(2020, 1, 1, tzinfo=UTC),
    end_date=datetime(2022, 12, 31, tzinfo=UTC),
    catchup=False,
):
    for task_id in ("lost", "untouched"):
        Work(task_id=task_id, executor_config=light_pod(1))

with DAG("tested", schedule=None, catchup=False):
    for task_id in ("lost", "untouched"):
        Work(task_id=task_id, executor_config=light_pod(1))

with DAG("tidied", schedule=None, catchup=False):
    Work(task_id="lost", executor_config=light_pod())
    Work(task_id="held", executor_config=held_pod())

# As the documentation of Airflow has it: a container renews the ticket that the worker finds in a volume.
tickets, settings = V1VolumeMount("/tickets", name="tickets"), V1VolumeMount("/etc/krb5", name="krb5")
kerberized = V1Pod(
    spec=V1PodSpec(
        init_containers=[
            V1Container(
                name="first-ticket",
                image="airflow:lab",
                args=["kerberos", "--one-time"],
                volume_mounts=[tickets, settings],
            )
        ],
        containers=[
            V1Container(
                name="base",
                env=[
                    V1EnvVar("KRB5CCNAME", "/tickets/cache"),
                    V1EnvVar("KRB5_CONFIG", "/etc/krb5/krb5.conf"),
                ],
                volume_mounts=[tickets, settings],
            ),
            V1Container(
                name="kerberos", image="airflow:lab", args=["kerberos"], volume_mounts=[tickets, settings]
            ),
        ],
        volumes=[
            V1Volume(name="tickets", empty_dir=V1EmptyDirVolumeSource(medium="Memory")),
            V1Volume(name="krb5", config_map=V1ConfigMapVolumeSource(name="krb5")),
        ],
    )
)
# And the official container that waits for a result in a file, with its settings.
with_xcom_sidecar = add_xcom_sidecar(
    kerberized,
    sidecar_container_image="alpine:lab",
    sidecar_container_resources=V1ResourceRequirements(requests={"cpu": "2m"}, limits={"memory": "20Mi"}),
)
with DAG("kerberized", schedule=None, catchup=False):
    Work(
        task_id="lost",
        environment={"KRB5CCNAME": "/tickets/cache"},
        executor_config={"pod_override": with_xcom_sidecar},
    )
