# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_features.py. What happens to their pods is in faults.yaml."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG
from kubernetes.client import (
    V1Container,
    V1EnvVar,
    V1EnvVarSource,
    V1ObjectMeta,
    V1Pod,
    V1PodSpec,
    V1SecretKeySelector,
    V1SecretVolumeSource,
    V1Volume,
    V1VolumeMount,
)

from testbed.work import LIGHT_WORKER, Work, WorkAfterWaiting, held_pod, light_pod

FOLDER = Path(__file__).parent

with DAG("mapped", schedule=None, catchup=False):
    Work.partial(task_id="item", executor_config=light_pod()).expand(number=[1, 2, 3])

PASSWORD = V1EnvVarSource(secret_key_ref=V1SecretKeySelector(name="mail", key="password"))
custom_pod = {
    "pod_template_file": str(FOLDER / "template.yaml"),
    "pod_override": V1Pod(
        metadata=V1ObjectMeta(labels={"team": "blue"}),
        spec=V1PodSpec(
            containers=[
                V1Container(
                    name="base",
                    env=[V1EnvVar("COLOUR", "blue"), V1EnvVar("PASSWORD", value_from=PASSWORD)],
                    volume_mounts=[V1VolumeMount(name="tls", mount_path="/tls")],
                )
            ],
            volumes=[V1Volume(name="tls", secret=V1SecretVolumeSource(secret_name="tls"))],
        ),
    ),
}
with DAG("custom_pod", schedule=None, catchup=False):
    Work(task_id="custom", environment={"COLOUR": "blue"}, executor_config=custom_pod)

with DAG("beside_a_sidecar", schedule=None, catchup=False):
    Work(task_id="custom", executor_config={"pod_template_file": str(FOLDER / "template.yaml")})

with DAG("unplaced", schedule=None, catchup=False):
    Work(task_id="work", executor_config=light_pod())

with DAG("lingering", schedule=None, catchup=False):
    WorkAfterWaiting(task_id="waiter", executor_config=held_pod())

# The pods of these tasks wait until the test has decided about each.
for dag_id, worker in {"cleared": LIGHT_WORKER, "shown": ()}.items():
    with DAG(dag_id, schedule=None, catchup=False):
        Work(task_id="held", executor_config=held_pod(*worker))
