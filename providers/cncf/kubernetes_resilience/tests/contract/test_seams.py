# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Airflow and the official provider are as this executor needs them.

Needs no database, no cluster and none of the contributor tools: it is run with each supported version.
"""

from __future__ import annotations

import copy
import json
import logging
import multiprocessing
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import jwt
import pytest
from airflow.cli.simple_table import AirflowConsole
from airflow.configuration import conf
from airflow.executors import executor_loader, workloads
from airflow.executors.executor_utils import ExecutorName
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.dag import DagModel
from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.providers.cncf.kubernetes.exceptions import PodMutationHookException
from airflow.providers.cncf.kubernetes.executors import kubernetes_executor_utils
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import (
    POD_EXECUTOR_DONE_KEY,
    KubernetesJob,
)
from airflow.providers.cncf.kubernetes.get_provider_info import get_provider_info
from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator
from airflow.providers_manager import ProvidersManager
from airflow.sdk import DAG, BaseOperator
from airflow.utils.state import TaskInstanceState
from airflow.version import version as airflow_version
from kubernetes.client import models as k8s
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from sqlalchemy import inspect, select
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.orm import Session

import airflow
from airflow import settings
from airflow.providers.cncf.kubernetes_resilience.cli import answers, dag_yaml_command
from airflow.providers.cncf.kubernetes_resilience.cli.dag_yaml_command import preview
from airflow.providers.cncf.kubernetes_resilience.cli.output import print_rows
from airflow.providers.cncf.kubernetes_resilience.executors import assembly, upstream
from airflow.providers.cncf.kubernetes_resilience.executors.creation import pod_builder
from airflow.providers.cncf.kubernetes_resilience.executors.creation.pod_builder import PodBuilder
from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, Waiting
from airflow.providers.cncf.kubernetes_resilience.executors.policy_settings import UPSTREAM_SECTION
from airflow.providers.cncf.kubernetes_resilience.executors.settings import (
    WITHOUT_MEANING,
    find_without_meaning,
    read_settings,
)
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.dependents import typed_ids
from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    DONE_LABEL,
    TASK_INSTANCE_ID_ANNOTATION,
    read_pod,
)
from airflow.providers.cncf.kubernetes_resilience.pods.thread.runtime import RuntimeSettings
from airflow_resilience import ledger
from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    StateChangeCategory,
    StateChangeReason,
)
from airflow_resilience.decision import Action, Decision
from airflow_resilience.ledger_entries import LaunchHistory, LedgerEntry
from airflow_resilience.past_tries import PAST_TRY_ID, PastTry
from airflow_resilience.retry_policy.rule import OFF

TI_ID = str(uuid.UUID("01954f1e-4c5b-7d2a-8f57-5a4f1c6b0001"))
KEY = TaskInstanceKey("sales", "load", "manual__2026-03-01T08:00:00+00:00", 1, 2)


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Refuse connections, processes and threads that a test does not clean up."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("no connection and no process is needed for this")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(multiprocessing.Process, "start", refuse)
    threads, processes = set(threading.enumerate()), set(multiprocessing.active_children())
    yield
    assert set(threading.enumerate()) == threads
    assert set(multiprocessing.active_children()) == processes


# ------------------------------------------------------------------------------------------------------ seams


FAILED_LAUNCH = LedgerEntry(
    ti_id=TI_ID,
    worker_uid="uid-1",
    worker_name="sales-load-x7k2m9qa",
    launch=1,
    reason="Evicted",
    context=ExecutionContext(
        StateChangeCategory.INFRASTRUCTURE, StateChangeReason.WORKER_TERMINATION, ContextSource.EXECUTOR
    ),
    decision=Decision(
        action=Action.RELAUNCH, policy="built-in", rule="launch-failure", explanation="launch 1 of 2"
    ),
)


def failed(launches: int) -> LaunchHistory:
    """Return the history of a try of which so many launches have failed."""
    history = LaunchHistory()
    history.entries = [FAILED_LAUNCH] * launches
    return history


def test_without_traces_there_is_no_tracer() -> None:
    assert upstream.find_tracer("launches") is None


@pytest.fixture
def traces_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make spans, which are sent nowhere, since none of them ends."""
    monkeypatch.setenv("AIRFLOW__TRACES__OTEL_ON", "True")
    if upstream._AIRFLOW_VERSION >= (3, 2):
        from airflow._shared.observability.traces import OverrideableRandomIdGenerator

        provider = TracerProvider(id_generator=OverrideableRandomIdGenerator())
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
        yield
        return
    from airflow.traces.tracer import Trace

    monkeypatch.setattr(Trace, "factory", None)
    monkeypatch.setattr(Trace, "instance", None)
    yield
    Trace.instance.span_processor.shutdown()


def test_tracer_makes_spans_of_a_given_id(traces_on: None) -> None:
    tracer = upstream.find_tracer("launches")
    assert tracer is not None
    with upstream.with_span_id(7):
        span = tracer.start_span("launch")
    assert span.is_recording()
    assert upstream._AIRFLOW_VERSION < (3, 2) or span.get_span_context().span_id == 7


def test_options_have_their_documented_defaults() -> None:
    ProvidersManager().initialize_providers_configuration()  # as every airflow command does
    settings = read_settings(conf)
    assert (settings.launch_failure_retries, settings.excluded_container_reasons) == (1, {"Error"})
    assert settings.api_concurrency == 32
    # Nobody has set it, which the official provider's default does not count as.
    assert (settings.publish_retries, conf.getint("kubernetes_executor", "task_publish_max_retries")) == (
        None,
        0,
    )


# --------------------------------------------------------------------------------------------------- executor


@pytest.fixture
def fresh_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loader forget which executors are configured, and recall it after the test."""
    for name, value in list(vars(executor_loader).items()):
        if "executor" in name and isinstance(value, list | dict):
            monkeypatch.setattr(executor_loader, name, forgotten := copy.copy(value))
            forgotten.clear()


def test_executor_takes_the_place_of_the_official_one(
    monkeypatch: pytest.MonkeyPatch, fresh_loader: None
) -> None:
    path = f"{KubernetesExecutor.__module__}.{KubernetesExecutor.__qualname__}"
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", f"KubernetesExecutor:{path}")
    loader = executor_loader.ExecutorLoader
    assert loader.import_default_executor_cls()[0] is KubernetesExecutor
    assert loader.lookup_executor_name_by_str("KubernetesExecutor").module_path == path


def test_name_alone_is_ours_where_the_provider_has_ours_in_its_place_and_only_there(
    monkeypatch: pytest.MonkeyPatch, fresh_loader: None
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "KubernetesExecutor")
    executor = executor_loader.ExecutorLoader.import_default_executor_cls()[0]
    # Asked of what is installed, and not of where upstream.py has found the official module.
    is_in_place = "+resilience." in version("apache-airflow-providers-cncf-kubernetes")
    assert (executor is KubernetesExecutor) == is_in_place
    assert executor is KubernetesExecutor or executor in KubernetesExecutor.__mro__


def test_executor_that_was_never_started_holds_nothing_and_can_be_ended() -> None:
    executor = KubernetesExecutor()
    assert (executor.task_queue, executor.kube_scheduler, executor.kube_client) == (None, None, None)
    executor.end()
    executor.end()


class IdleRuntime:
    """Stands for the thread that talks to Kubernetes, and does not start one."""

    def __init__(self, settings: RuntimeSettings, emit: Any) -> None:
        self.settings = settings
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def stop(self, timeout: float) -> None:
        self.calls.append("stop")


def test_executor_starts_with_the_defaults_of_every_version(monkeypatch: pytest.MonkeyPatch) -> None:
    ProvidersManager().initialize_providers_configuration()
    runtimes: list[IdleRuntime] = []

    def make(*args: Any) -> IdleRuntime:
        runtimes.append(IdleRuntime(*args))
        return runtimes[0]

    monkeypatch.setattr(assembly, "KubernetesRuntime", make)
    executor = KubernetesExecutor()
    executor.job_id = 7
    executor.start()
    executor.end()
    executor.end()
    (runtime,) = runtimes
    assert runtime.calls == ["start", "stop"]
    assert (runtime.settings.namespaces, runtime.settings.team_name) == (("default",), None)
    assert runtime.settings.label_selector == (
        "airflow-worker=7,airflow-resilience/executor=KubernetesExecutor,airflow_executor_done!=True"
    )
    options = vars(executor.kube_config)
    assert {"delete_worker_pods", "delete_worker_pods_on_failure"} <= options.keys()
    assert isinstance(options["worker_pod_pending_fatal_container_state_reasons"], list)
    assert options["multi_namespace_mode"] is False


def test_workload_can_be_revoked_before_the_executor_is_started() -> None:
    executor = KubernetesExecutor()
    executor.queue_workload(workload(), session=None)
    assert list(upstream.queued_tasks(executor)) == [KEY]
    executor.revoke_task(ti=SimpleNamespace(key=KEY))
    assert list(upstream.queued_tasks(executor)) == []


def make_executor() -> KubernetesExecutor:
    """Make an executor without a database; parts that are started would need one."""
    executor = KubernetesExecutor()
    executor.task_queue, executor._parts = Queue(), Mock()
    return executor


def test_workload_becomes_a_job() -> None:
    executor = make_executor()
    executor.queue_workload(queued := workload(), session=None)
    executor._process_workloads([queued])
    [job] = executor._parts.launch_queue.add.call_args.args
    assert isinstance(job, KubernetesJob)
    assert (job.key, str(job.command[0].ti.id)) == (KEY, TI_ID)
    assert (list(upstream.queued_tasks(executor)), executor.running) == ([], {KEY})
    assert not executor.pod_launch_attempts, "upstream's own record would grow with every task"


def test_label_of_pods_that_are_done_with_is_the_official_one() -> None:
    assert DONE_LABEL == POD_EXECUTOR_DONE_KEY


def test_event_that_is_left_over_keeps_the_scheduler_awake() -> None:
    executor = make_executor()
    executor.queue_workload(queued := workload(), session=None)
    executor._process_workloads([queued])
    assert executor.get_event_buffer().keys() == {KEY}
    executor._slots.stay_awake()
    # Nothing is asked of the database for it: there is none.
    handled = SchedulerJobRunner.process_executor_events(
        executor=executor, job_id=7, scheduler_dag_bag=None, session=None
    )
    assert handled == 1
    assert executor.event_buffer == {}


# ------------------------------------------------------------------------------------------------------- pods


def workload() -> workloads.ExecuteTask:
    values = {
        "token": "the one that was made when the task was queued",
        "ti": {
            **KEY._asdict(),
            "id": TI_ID,
            "dag_version_id": str(uuid.uuid4()),
            "pool_slots": 1,
            "queue": "default",
            "priority_weight": 1,
        },
        "dag_rel_path": "sales.py",
        "bundle_info": {"name": "dags", "version": None},
        "log_path": "sales/load.log",
    }
    return workloads.ExecuteTask.model_validate(values)


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "template.yaml"
    path.write_text(
        json.dumps(
            {
                "metadata": {"name": "worker", "labels": {"team": "sales"}},
                "spec": {
                    "containers": [{"name": "base", "image": "airflow:template"}],
                    "restartPolicy": "Never",
                },
            }
        )
    )
    return path


@pytest.fixture
def factory(template: Path, monkeypatch: pytest.MonkeyPatch) -> PodBuilder:
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE", str(template))
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__NAMESPACE", "workers")
    executor = KubernetesExecutor()
    return PodBuilder(
        kube_config=executor.kube_config,
        scheduler_job_id="7",
        executor_label="KubernetesExecutor",
        make_token=lambda ti_id: upstream.make_token(ti_id, executor.jwt_generator),
        worker_log_as_termination_message=True,
        infrastructure=OFF,
    )


def waiting(override: k8s.V1Pod | None = None) -> Launch:
    job = KubernetesJob(KEY, [workload()], override, None, None)
    return Launch(KEY, TI_ID, waiting=Waiting(job))


def job_of(launch: Launch) -> KubernetesJob:
    assert launch.waiting is not None
    assert launch.waiting.job is not None
    return launch.waiting.job


def workload_of(body: dict[str, Any]) -> dict[str, Any]:
    args = body["spec"]["containers"][0]["args"]
    return json.loads(args[args.index("--json-string") + 1])


def claims(token: str) -> dict[str, Any]:
    return jwt.decode(token, options={"verify_signature": False})


def test_pod_is_built_without_a_cluster(factory: PodBuilder) -> None:
    launch = waiting()
    body = factory.build(launch, failed(2)).body
    metadata, spec = body["metadata"], body["spec"]
    assert (
        (metadata["namespace"], metadata["name"])
        == ("workers", launch.name)
        == (launch.namespace, launch.name)
    )
    assert metadata["labels"]["airflow-worker"] == "7"
    assert metadata["labels"]["team"] == "sales"
    assert {
        "dag_id": "sales",
        "task_id": "load",
        "run_id": KEY.run_id,
        "try_number": "1",
        "map_index": "2",
        "airflow-resilience/launch-id": launch.launch_id,
        "airflow-resilience/launch-number": "3",
        "airflow-resilience/task-instance-id": TI_ID,
    }.items() <= metadata["annotations"].items()
    assert spec["containers"][0]["name"] == "base"
    json.dumps(body)


def test_pod_override_is_applied(factory: PodBuilder) -> None:
    override = k8s.V1Pod(
        spec=k8s.V1PodSpec(
            containers=[k8s.V1Container(name="base", image="airflow:override")], priority_class_name="high"
        )
    )
    body = factory.build(waiting(override), failed(0)).body
    assert body["spec"]["containers"][0]["image"] == "airflow:override"
    assert body["spec"]["priorityClassName"] == "high"


def test_pod_is_the_official_executors_pod(
    factory: PodBuilder, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (pod_builder, kubernetes_executor_utils):
        monkeypatch.setattr(module, "create_unique_id", lambda *_args: "sales-load-x7k2m9qa")
    launch = waiting()
    job = job_of(launch)
    monkeypatch.setattr(upstream, "make_token", lambda *_args: job.command[0].token)
    hooked: list[k8s.V1Pod] = []
    monkeypatch.setattr(settings, "pod_mutation_hook", hooked.append)
    official = object.__new__(kubernetes_executor_utils.AirflowKubernetesScheduler)
    vars(official).update(
        log=logging.getLogger(__name__),
        kube_config=KubernetesExecutor().kube_config,
        namespace="workers",
        scheduler_job_id="7",
        supports_task_instance_uuid=False,
    )
    body = factory.build(launch, failed(0)).body
    expected = PodGenerator.serialize_pod(official._build_pod_request(job))
    ours = {name for name in body["metadata"]["annotations"] if name.startswith("airflow-resilience/")}
    for name in ours:
        del body["metadata"]["annotations"][name]
    assert body["metadata"]["labels"].pop("airflow-resilience/executor") == "KubernetesExecutor"
    assert body["spec"]["containers"][0].pop("terminationMessagePolicy") == "FallbackToLogsOnError"
    assert body == expected
    assert len(ours) == 3
    assert len(hooked) == 2, "the hook has seen both pods"


def test_pod_of_a_task_is_shown_before_it_has_a_run(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(template.read_text().replace('"sales"', '"own"'))
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE", str(template))
    override = k8s.V1Pod(spec=k8s.V1PodSpec(containers=[], priority_class_name="high"))
    with DAG("sales", schedule=None) as dag:
        config = {"pod_template_file": str(own), "pod_override": override}
        BaseOperator.partial(task_id="load", executor_config=config).expand(doc=["a", "b"])
    task = upstream.schedulers_dag(dag).get_task("load")
    model = DagModel(dag_id="sales", bundle_name="dags", relative_fileloc="sales.py")
    run = dag_yaml_command.make_run("sales", datetime(2026, 1, 1, tzinfo=UTC))
    body = preview(KubernetesExecutor(), dag_yaml_command.make_workload(task, model, run))
    labels = body["metadata"]["labels"]
    assert (labels["team"], labels["task_id"], labels["try_number"]) == ("own", "load", "1")
    assert body["spec"]["priorityClassName"] == "high"
    shown = workload_of(body)
    assert (shown["token"], shown["ti"]["id"]) == ("set-at-launch", str(uuid.UUID(int=0)))
    assert (shown["dag_rel_path"], shown["bundle_info"]["name"]) == ("sales.py", "dags")


def test_hook_that_fails_is_told_from_other_errors(
    factory: PodBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_pod: k8s.V1Pod) -> None:
        raise LookupError("no such node pool")

    monkeypatch.setattr(settings, "pod_mutation_hook", fail)
    with pytest.raises(PodMutationHookException) as caught:
        factory.build(waiting(), failed(0))
    assert isinstance(caught.value.__cause__, LookupError)


def test_each_launch_has_a_name_of_its_own_and_a_token_that_is_valid_from_now_on(factory: PodBuilder) -> None:
    before = datetime.now(UTC).timestamp()
    launches = waiting(), waiting()
    bodies = [factory.build(launch, failed(number)).body for number, launch in enumerate(launches)]
    first, second = launches
    assert first.name != second.name
    assert first.launch_id != second.launch_id
    for body in bodies:
        token = claims(workload_of(body)["token"])
        assert token["sub"] == TI_ID
        assert token["exp"] >= before + 60
        assert upstream.read_validity(workload_of(body)["token"]) == token["exp"] - token["iat"]
    assert job_of(first).command[0].token == job_of(waiting()).command[0].token, "the job is left as it was"


def test_pod_of_the_official_executor_says_whose_it_is(factory: PodBuilder) -> None:
    body = factory.build(waiting(), LaunchHistory()).body
    del body["metadata"]["annotations"][TASK_INSTANCE_ID_ANNOTATION]
    body["metadata"] |= {"namespace": "airflow", "uid": "1"}
    assert read_pod(body).annotations[TASK_INSTANCE_ID_ANNOTATION] == TI_ID


@pytest.mark.parametrize(
    ("alias", "team", "label"),
    [
        ("KubernetesExecutor", None, "KubernetesExecutor"),
        (None, None, "path.to.Executor"),
        ("k8s", "a", "a.k8s"),
    ],
)
def test_label_is_made_of_the_executors_name(alias: str | None, team: str | None, label: str) -> None:
    executor = KubernetesExecutor()
    executor.name, executor.team_name = ExecutorName("path.to.Executor", alias), team
    assert executor.label == label


# --------------------------------------------------------------------------------------------------- database


def test_columns_of_task_instances_are_there() -> None:
    attributes = set(inspect(TaskInstance).all_orm_descriptors.keys())
    assert {
        *("id", "dag_id", "task_id", "run_id", "try_number", "map_index", "state", "hostname"),
        *("queued_by_job_id", "queued_dttm", "scheduled_dttm"),
    } <= attributes
    states = {"queued", "running", "restarting", "scheduled", "failed"}
    assert states <= {state.value for state in TaskInstanceState}


def test_columns_of_past_tries_are_there() -> None:
    names = ("dag_id", "task_id", "run_id", "try_number", "map_index", "end_date", "hostname")
    assert all(hasattr(PastTry, name) for name in names)
    assert PAST_TRY_ID.type.compile() == TaskInstance.id.type.compile()


@pytest.mark.skipif(
    airflow_version.startswith(("3.1.", "3.2.", "3.3.")), reason="from Airflow 3.4 on it is noted"
)
def test_new_id_of_a_task_instance_is_noted_where_the_scheduler_looks_for_it() -> None:
    executor, new_id = KubernetesExecutor(), str(uuid.uuid4())
    upstream.follow_new_id(executor, KEY, TI_ID, new_id)
    assert {str(ti_id.id): key for ti_id, key in executor._task_coordinates.items()} == {new_id: KEY}


@pytest.mark.parametrize("column", [TaskInstance.id, PAST_TRY_ID], ids=str)
@pytest.mark.parametrize("dialect", [postgresql, mysql, sqlite])
def test_id_of_a_task_instance_is_bound_as_its_column_wants_it(dialect: Any, column: Any) -> None:
    query = select(column).where(column.in_(typed_ids([TI_ID], column)))
    text = str(query.compile(dialect=dialect.dialect(), compile_kwargs={"literal_binds": True}))
    assert TI_ID.replace("-", "") in text.replace("-", "")


def test_ledger_writes_and_reads_the_audit_log(session: Session) -> None:
    ledger.record([(KEY, FAILED_LAUNCH)], session=session)
    session.flush()
    assert ledger.read_histories({KEY: TI_ID}, session=session)[KEY].launches.entries == [FAILED_LAUNCH]
    session.add(Log(event=TaskInstanceState.RUNNING.value, task_instance=KEY))
    session.flush()
    assert ledger.read_histories({KEY: TI_ID}, session=session)[KEY].launches.entries == []


@pytest.mark.skipif(
    airflow_version.startswith("3.1."),
    reason="Airflow 3.1 does not write it: there, relaunches count for the whole try of a deferred task",
)
def test_start_of_a_task_process_is_written_to_the_audit_log() -> None:
    # Read and not imported: that would take the whole web framework in.
    routes = Path(airflow.__path__[0], "api_fastapi", "execution_api", "routes", "task_instances.py")
    assert "event=TaskInstanceState.RUNNING.value" in routes.read_text()


def test_options_without_a_meaning_have_the_defaults_that_are_known_here() -> None:
    # Else each start would warn of what nobody has configured.
    assert find_without_meaning(conf) == []
    section = get_provider_info()["config"][UPSTREAM_SECTION]["options"]
    known = {key: (section[key]["default"] or "").strip() for key in WITHOUT_MEANING if key in section}
    assert known == {key: WITHOUT_MEANING[key] for key in known}
    assert {"worker_pods_creation_batch_size", "enable_tcp_keepalive"} <= known.keys()


def test_commands_without_airflow_assume_the_default_of_the_official_provider() -> None:
    option = get_provider_info()["config"][UPSTREAM_SECTION]["options"][answers.GIVEN_UP_REASONS]
    assert option["default"] == answers.GIVEN_UP_REASONS_OF_UPSTREAM


@pytest.mark.parametrize("output", ["json", "yaml", "plain"])
def test_results_are_printed_as_airflow_prints_its_own(
    output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"name": f"[{number}]", "value": ":warning: " + "long " * number} for number in (1, 2, 70)]
    capsys.readouterr()
    AirflowConsole().print_as(rows, output)
    expected = capsys.readouterr().out
    print_rows(rows, rows, output)
    assert capsys.readouterr().out == expected


@pytest.mark.airflow_alone
def test_commands_without_airflow_look_for_providers_where_airflow_does() -> None:
    program = (
        "import airflow_kubernetes_resilience_launcher as launcher; launcher._enter_airflow();"
        " import sys; print(*sys.modules['airflow'].__path__, sep='\\n')"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    ours = "import airflow; print(*airflow.__path__, sep='\\n')"
    expected = subprocess.run([sys.executable, "-c", ours], capture_output=True, text=True, check=True)
    assert found.stdout == expected.stdout
