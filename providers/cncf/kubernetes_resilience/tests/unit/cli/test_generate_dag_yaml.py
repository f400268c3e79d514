# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from uuid import UUID

import pytest
import yaml

from airflow import settings
from airflow.providers.cncf.kubernetes_resilience.pods.facts import WORKER_CONTAINER
from airflow_resilience.retry_policy.evidence import Phase

from ...support.cluster import TEMPLATE
from .conftest import LOCAL, OURS

DAG = """
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from kubernetes.client import V1Container, V1Pod, V1PodSpec

def pod(**fields):
    return V1Pod(spec=V1PodSpec(containers=[V1Container(name="base", **fields)]))

with DAG("purchases", schedule=None):
"""


@pytest.fixture
def template(tmp_path):
    """Give a function that writes a pod template, whose pods have a label, and returns its path."""

    def write(label, **spec):
        path = tmp_path / f"{label}.yaml"
        metadata = TEMPLATE["metadata"] | {"labels": {"template": label}}
        path.write_text(yaml.safe_dump(TEMPLATE | {"metadata": metadata, "spec": TEMPLATE["spec"] | spec}))
        return str(path)

    return write


@pytest.fixture
def generate(run, session, configure, template, tmp_path, monkeypatch):
    """Give a function that runs the command for a Dag with some tasks."""
    dags = tmp_path / "dags"
    dags.mkdir()
    bundle = {
        "name": "files",
        "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
        "kwargs": {"path": str(dags)},
    }
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([bundle]))
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE", template("deployment"))

    def command(*tasks, words=(), dag="purchases", date=("--logical-date", "2026-01-01")):
        (dags / "purchases.py").write_text(DAG + "".join(f"    {task}\n" for task in tasks))
        return run("generate-dag-yaml", dag, *date, "--output-path", tmp_path / "out", *words)

    return command


@pytest.fixture
def shown(generate, tmp_path):
    """Give a function that runs the command and returns the pods that it has written, by task."""

    def command(*tasks, words=()):
        code, out, err = generate(*tasks, words=words)
        folder = tmp_path / "out" / "airflow_yaml_output"
        assert (code, out.splitlines()[-1]) == (0, f"YAML output can be found at {folder}"), err
        suffix = "_2026-01-01T00_00_00_plus_00_00.yml"
        return {
            file.name.removeprefix("purchases_").removesuffix(suffix): yaml.safe_load(file.read_text())
            for file in folder.iterdir()
        }

    return command


def worker(pod):
    (container,) = (one for one in pod["spec"]["containers"] if one["name"] == WORKER_CONTAINER)
    return container


def environment(pod):
    return {item["name"]: item["value"] for item in worker(pod)["env"]}


def test_pod_is_that_of_the_first_launch_and_its_secrets_are_not_shown(shown):
    pod = shown('EmptyOperator(task_id="load")')["load"]
    labels, annotations = pod["metadata"]["labels"], pod["metadata"]["annotations"]
    assert (labels["template"], labels["task_id"], labels["try_number"]) == ("deployment", "load", "1")
    assert labels["airflow-worker"] == "set-at-launch"
    assert "airflow-resilience/executor" in labels
    assert {name: value for name, value in annotations.items() if name.startswith("airflow-resilience/")} == {
        "airflow-resilience/launch-id": "set-at-launch",
        "airflow-resilience/launch-number": "1",
        "airflow-resilience/task-instance-id": str(UUID(int=0)),
    }
    assert worker(pod)["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert not [name for name in environment(pod) if name.startswith("AIRFLOW_RESILIENCE_")]
    workload = json.loads(worker(pod)["args"][-1])
    assert workload["token"] == "set-at-launch"
    assert (workload["dag_rel_path"], workload["bundle_info"]["name"]) == ("purchases.py", "files")
    assert workload["ti"]["id"] == workload["ti"]["dag_version_id"] == str(UUID(int=0))
    assert workload["ti"]["run_id"] == annotations["run_id"] == "manual__2026-01-01T00:00:00+00:00"


def test_template_override_and_options_of_a_task(shown, template):
    own = template("own", terminationGracePeriodSeconds=60)
    options = f"pod_template_file={own!r}, pod_override=pod(image='x'), infrastructure_retry_limit=2"
    pod = shown(f'EmptyOperator(task_id="load", executor_config=dict({options}))')["load"]
    assert (pod["metadata"]["labels"]["template"], worker(pod)["image"]) == ("own", "x")
    assert (
        environment(pod).items()
        >= {
            "AIRFLOW_RESILIENCE_INFRASTRUCTURE_RETRY": "1",
            "AIRFLOW_RESILIENCE_TERMINATION_GRACE_PERIOD": "60",
        }.items()
    )


def test_configuration_is_respected(shown, monkeypatch):
    section = "AIRFLOW__KUBERNETES_RESILIENCE"
    monkeypatch.setenv(f"{section}__INFRASTRUCTURE_RETRY_BUDGET", "1")
    monkeypatch.setenv(f"{section}__WORKER_LOG_AS_TERMINATION_MESSAGE", "False")
    pod = shown('EmptyOperator(task_id="load")')["load"]
    assert "AIRFLOW_RESILIENCE_INFRASTRUCTURE_RETRY" in environment(pod)
    assert "terminationMessagePolicy" not in worker(pod)


def test_mutation_hook_has_the_last_word(shown, monkeypatch):
    def hook(pod):
        pod.spec.priority_class_name = pod.spec.containers[0].termination_message_policy

    monkeypatch.setattr(settings, "pod_mutation_hook", hook)
    pod = shown('EmptyOperator(task_id="load")')["load"]
    assert pod["spec"]["priorityClassName"] == "FallbackToLogsOnError"


def test_what_a_hook_sets_is_written_as_it_is_sent(shown, monkeypatch):
    def hook(pod):
        pod.metadata.labels["phase"] = Phase.LAUNCH

    monkeypatch.setattr(settings, "pod_mutation_hook", hook)
    assert shown('EmptyOperator(task_id="load")')["load"]["metadata"]["labels"]["phase"] == "launch"


def test_mapped_task_has_one_file(shown):
    pods = shown('EmptyOperator.partial(task_id="load").expand(doc=["a", "b"])')
    assert list(pods) == ["load"]


GLOBAL, BLUE = ("LocalExecutor", LOCAL), (None, OURS, "blue")


@pytest.mark.parametrize(
    ("configured", "team", "task", "is_ours"),
    [
        ([(None, OURS), GLOBAL], None, "", True),
        ([(None, OURS), GLOBAL], None, 'executor="LocalExecutor"', False),
        ([GLOBAL, (None, OURS)], None, "", False),
        ([GLOBAL, BLUE], "blue", "", True),
        ([GLOBAL, BLUE], "blue", 'executor="LocalExecutor"', False),
        ([GLOBAL, (None, OURS), ("quick", LOCAL, "blue")], "blue", "", False),
        ([(None, OURS), (None, OURS, "red")], "blue", "", True),
    ],
)
def test_task_of_another_executor_is_left_out(
    generate, configure, template, tmp_path, monkeypatch, configured, team, task, is_ours
):
    configure(*configured)
    monkeypatch.setenv("AIRFLOW__BLUE___KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE", template("blue"))
    code, out, err = generate(
        f'EmptyOperator(task_id="load", {task})', words=["--team", team] if team else []
    )
    assert code == 0, err
    assert ("load is left out: it is for " not in out) is is_ours
    assert len(list((tmp_path / "out").rglob("*.yml"))) == is_ours


def test_pod_of_a_team_is_that_of_its_configuration(shown, configure, template, monkeypatch):
    configure(GLOBAL, BLUE)
    monkeypatch.setenv("AIRFLOW__BLUE___KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE", template("blue"))
    pod = shown('EmptyOperator(task_id="load")', words=["--team", "blue"])["load"]
    assert pod["metadata"]["labels"]["template"] == "blue"


def test_bundle_that_is_named_need_not_have_been_deployed(shown):
    pod = shown('EmptyOperator(task_id="load")', words=["--bundle-name", "files"])["load"]
    assert json.loads(worker(pod)["args"][-1])["bundle_info"]["name"] == "files"


# --------------------------------------------------------------------------------------- what cannot be shown


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{'pod_override': {'spec': {}}}", "purchases.load: Invalid executor_config passed\n"),
        ("{'pod_template_file': '/gone.yaml'}", "purchases.load has no pod: FileNotFoundError: "),
        (
            "{'pod_override': pod(env='x')}",
            "An unexpected error occurred while trying to deserialize Dag 'purchases'\n",
        ),
    ],
)
def test_task_that_gets_no_pod_is_named_and_nothing_is_written(generate, tmp_path, config, said):
    outcome = generate(
        'EmptyOperator(task_id="a")', f'EmptyOperator(task_id="load", executor_config={config})'
    )
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(said)
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_mutation_hook_that_fails(generate, monkeypatch):
    def hook(pod):
        raise LookupError(f"no pool for {pod.metadata.labels['task_id']}")

    monkeypatch.setattr(settings, "pod_mutation_hook", hook)
    outcome = generate('EmptyOperator(task_id="load")')
    said = "purchases.load has no pod: PodMutationHookException: LookupError: no pool for load\n"
    assert outcome == (2, "", said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dag": "gone"}, "Dag 'gone' could not be found; either it does not exist or it failed to parse.\n"),
        ({"words": ["--bundle-name", "gone"]}, "Requested bundle 'gone' is not configured.\n"),
        ({"date": ()}, "--logical-date is needed\n"),
    ],
)
def test_what_is_asked_for_does_not_exist(generate, options, said):
    assert generate('EmptyOperator(task_id="load")', **options) == (2, "", said)


@pytest.mark.parametrize(
    ("configured", "said"),
    [
        ([GLOBAL], "[core] executor names no executor of this provider\n"),
        ([GLOBAL, BLUE], "[core] executor names no executor of this provider for Dags without a team\n"),
    ],
)
def test_no_executor_of_this_kind(generate, configure, configured, said):
    configure(*configured)
    assert generate('EmptyOperator(task_id="load")') == (2, "", said)


def test_no_template(generate, monkeypatch):
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE", "")
    said = "[kubernetes_executor] pod_template_file is not set\n"
    assert generate('EmptyOperator(task_id="load")') == (2, "", said)


def test_folder_that_cannot_be_written(generate, tmp_path):
    (tmp_path / "out").write_text("a file")
    code, _, err = generate('EmptyOperator(task_id="load")')
    assert code == 2
    assert "Not a directory" in err
