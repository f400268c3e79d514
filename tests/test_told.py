# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Everyone is told why, and the same: listeners, callbacks, operators, the next run, metrics, traces, logs, the
audit log, pages and the report, in one deployment with all of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from sqlalchemy import text

from airflow_resilience import metrics
from cluster_lab.faults.plan import Fault
from cluster_lab.managed_process import run_to_end
from pictures.browser import find_chromium, log_in, open_browser
from pictures.places import FAILURES, launches
from testbed.airflow_deployment import AIRFLOW as AIRFLOW_COMMAND
from testbed.airflow_version import airflow_version
from testbed.code_journal import Order
from testbed.packages import needs
from testbed.records import Run
from testbed.telemetry import Collector, Counts, Metric, StatsdServer, attributes_of, serving
from testbed.testbed import Testbed
from testbed.told import Channel, Witness
from testbed.waiting import wait_for

AIRFLOW = airflow_version()

pytestmark = [
    pytest.mark.system,
    pytest.mark.each_version,
    pytest.mark.skipif(
        AIRFLOW >= (3, 4),
        reason="the scheduler of Airflow 3.4.0b2 ends when an executor reports the failure of a task with a"
        " callback and retries left: sending the callback takes the task instance out of the session",
    ),
]

FORWARDS_SIGTERM = AIRFLOW >= (3, 3)
"""Before, a worker that is told to go may end before it has called ``on_kill()``."""

HAS_JSON_LOGS = AIRFLOW >= (3, 2)

API_SERVER_COUNTS = AIRFLOW != (3, 2)
"""That of Airflow 3.2 does not set its metrics up, and sends none."""

from_3_2_on = pytest.mark.skipif(
    not HAS_JSON_LOGS, reason="Airflow 3.1 has neither spans of workers nor logs in JSON"
)

DOCS = Path(__file__).parents[1] / "docs"

# ---------------------------------------------------------------------- what is told, and by whom


@dataclass(frozen=True)
class Story:
    """What happens to a task, and who tells why. Whoever is not named tells nothing."""

    title: str
    """As docs/execution-context.md has it, which says why the others tell nothing."""
    category: str
    reason: str
    source: str
    told_by: Counter[Channel]
    """How often."""

    @property
    def why(self) -> str:
        """As all tell it."""
        return f"{self.category} {self.reason}"

    @property
    def shown(self) -> str:
        """As pages show it."""
        return f"{self.category} / {self.reason}"

    @property
    def counted(self) -> list[Metric]:
        """What metrics count of it: each failure, by the process that knows of it first."""
        by_worker = self.told_by[Channel.LISTENER_IN_WORKER] if self.source == "WORKER" else 0
        by_others = 0 if self.source == "API" and not API_SERVER_COUNTS else self.told_by[Channel.LISTENER]
        tags = {"reason": self.reason, "dag_id": "told"}
        one = [Metric.of("task_instance.failed", category=self.category, source=self.source, **tags)]
        if self.category in {"INFRASTRUCTURE", "APPLICATION"}:
            one.append(Metric.of(f"task.failed.{self.category.lower()}", **tags))
        return one * (by_worker + by_others)

    def row(self) -> str:
        """Return the row of the table in docs/execution-context.md."""
        told = [
            ", ".join(words for channel, words in column.items() if self.told_by[channel])
            for column in COLUMNS.values()
        ]
        cells = [self.title, f"`{self.category}` / `{self.reason}`", *(words or "no" for words in told)]
        return f"| {' | '.join(cells)} |"


COLUMNS: Mapping[str, Mapping[Channel, str]] = {
    "listener": {
        Channel.LISTENER_IN_WORKER: "worker",
        Channel.LISTENER: "row",
        Channel.LISTENER_OF_RELAUNCHES: "relaunch",
    },
    "callback": {
        Channel.CALLBACK_IN_WORKER: "worker",
        Channel.CALLBACK_IN_DAG_PROCESSOR: "DAG processor",
    },
    "`on_kill`": {Channel.ON_KILL: "yes"},
    "next run": {Channel.NEXT_RUN: "yes"},
    "span, log": {Channel.SPAN: "yes"},
    "audit log, pages, report": {Channel.AUDIT_LOG: "yes"},
}
"""Of that table."""

WRITTEN = Counter([Channel.AUDIT_LOG, Channel.PAGE_OF_LAUNCHES, Channel.PAGE_OF_FAILURES])
"""What is stored, and shown."""

POD_LOST = WRITTEN + Counter([Channel.SPAN, Channel.LOG])
"""The executor has settled it. The worker is gone, and tells nothing."""

BY_SCHEDULER = Counter([Channel.LISTENER, Channel.CALLBACK_IN_DAG_PROCESSOR])
"""Airflow is told that the try has failed."""

BY_WORKER = Counter([Channel.LISTENER_IN_WORKER, Channel.CALLBACK_IN_WORKER])
"""It has lived to tell that its task has failed."""

RELAUNCHED = Counter([Channel.LISTENER_OF_RELAUNCHES, Channel.NEXT_RUN])
"""Airflow sees no failure."""

LOST = ("INFRASTRUCTURE", "WORKER_TERMINATION", "EXECUTOR")

STORIES = {
    "job_kept": Story(
        "evicted while it runs, within its infrastructure budget",
        *LOST,
        POD_LOST + RELAUNCHED + Counter([Channel.ON_KILL]),
    ),
    "exhausted": Story(
        "evicted within its infrastructure budget, then beyond it",
        *LOST,
        POD_LOST + RELAUNCHED + POD_LOST + BY_SCHEDULER,
    ),
    "tried_again": Story(
        "evicted without such a budget, with a retry left",
        *LOST,
        POD_LOST + BY_SCHEDULER + Counter([Channel.NEXT_RUN]),
    ),
    "out_of_memory": Story(
        "its container uses more memory than it may",
        "APPLICATION",
        "RESOURCE_EXHAUSTION",
        "EXECUTOR",
        POD_LOST + BY_SCHEDULER,
    ),
    "relaunched": Story(
        "evicted by its node before it begins",
        "INFRASTRUCTURE",
        "RESOURCE_EXHAUSTION",
        "EXECUTOR",
        POD_LOST + RELAUNCHED,
    ),
    "never_starts": Story(
        "its container cannot be started, twice",
        "INFRASTRUCTURE",
        "START_ERROR",
        "EXECUTOR",
        POD_LOST + Counter([Channel.LISTENER_OF_RELAUNCHES]) + POD_LOST + BY_SCHEDULER,
    ),
    "fails": Story(
        "raises an exception, with a retry left",
        "APPLICATION",
        "TASK_ERROR",
        "WORKER",
        WRITTEN + BY_WORKER + Counter([Channel.NEXT_RUN]),
    ),
    "times_out": Story(
        "takes longer than its `execution_timeout`",
        "TIMEOUT",
        "EXECUTION_TIMEOUT",
        "WORKER",
        WRITTEN + BY_WORKER + Counter([Channel.ON_KILL]),
    ),
    "marked": Story(
        "marked as failed, which breaks it off",
        "USER_ACTION",
        "MANUAL_STATE_CHANGE",
        "API",
        WRITTEN + Counter([Channel.LISTENER]) + BY_WORKER + Counter([Channel.ON_KILL]),
    ),
    "job_cancelled": Story(
        "cleared while it runs, which it takes calmly",
        "USER_ACTION",
        "MANUAL_CLEAR",
        "API",
        WRITTEN + Counter([Channel.CALLBACK_IN_DAG_PROCESSOR, Channel.ON_KILL, Channel.NEXT_RUN]),
    ),
    "run_times_out": Story(
        "its DAG run takes longer than `dagrun_timeout`, which breaks it off",
        "TIMEOUT",
        "DAG_RUN_TIMEOUT",
        "SCHEDULER",
        WRITTEN + BY_WORKER + Counter([Channel.ON_KILL]),
    ),
}

OTHERS = [story for story in STORIES.values() if not story.told_by[Channel.SPAN]]
"""Of tasks that have not lost their pod."""

# ---------------------------------------------------------------------- the deployment


@pytest.fixture(
    scope="module",
    params=["statsd", pytest.param("opentelemetry", marks=pytest.mark.long)],
)
def kind(request: pytest.FixtureRequest) -> str:
    """By what metrics are received: each has a deployment of its own."""
    return str(request.param)


@pytest.fixture(scope="module")
def collector(kind: str) -> Iterator[Collector]:
    """What receives the spans of all processes, a new one for each deployment."""
    with serving(Collector()) as collector:
        yield collector


@pytest.fixture(scope="module")
def receiver(kind: str, collector: Collector) -> Iterator[Collector | StatsdServer]:
    """What receives the metrics of all processes."""
    if kind == "opentelemetry":
        yield collector
        return
    with serving(StatsdServer()) as server:
        yield server


@pytest.fixture(scope="module")
def options(collector: Collector, receiver: Collector | StatsdServer) -> Mapping[str, str]:
    """Somebody's plugin is there, metrics and traces are sent, logs are JSON and uploaded."""
    before_3_2 = {
        "AIRFLOW__TRACES__OTEL_HOST": "127.0.0.1",
        "AIRFLOW__TRACES__OTEL_PORT": str(collector.server_port),
    }
    return {
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(Path(__file__).parent / "plugins"),
        "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET": "1",
        "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_DELAY": "0",
        "AIRFLOW__LOGGING__JSON_LOGS": "True",
        # REMOTE_LOGGING would make one from the scheme of a URL, and knows none of a folder.
        "AIRFLOW__LOGGING__LOGGING_CONFIG_CLASS": "remote_logs.LOGGING_CONFIG",
        "AIRFLOW__TRACES__OTEL_ON": "True",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_TRACES_EXPORTER": "otlp_proto_http",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        **({} if HAS_JSON_LOGS else before_3_2),
        **receiver.configuration,
    }


@pytest.fixture(scope="module")
def witness(testbed: Testbed, collector: Collector) -> Witness:
    """Knows what everybody has told."""
    return Witness(testbed, collector)


@pytest.fixture(scope="module")
def runs(testbed: Testbed) -> dict[str, Run]:
    """The run of each task. All have ended, in another way each."""
    run, cleared, in_time = map(testbed.trigger, ("told", "told_cleared", "told_in_time"))
    runs = {**dict.fromkeys(STORIES, run), "job_cancelled": cleared, "run_times_out": in_time}
    for task in STORIES.keys() - {"relaunched", "never_starts"}:
        runs[task].wait_for_code(task)
    job = job_of(testbed, "job_kept")
    for task in ("exhausted", "tried_again", "job_kept"):
        testbed.cluster.evict(pod_of(run, task))
    testbed.cluster.lose(pod_of(run, "out_of_memory"), Fault.OOM_RUNNING)
    testbed.api.mark(run.dag_id, run.run_id, "marked", "failed")
    assert testbed.api.clear(cleared.dag_id, cleared.run_id, "job_cancelled", only_running=True) == 1
    begin_long_ago(testbed, in_time)
    run.wait_for_times(2, "exhausted", "tried_again", "job_kept")
    testbed.cluster.evict(run.wait_for_pods("exhausted", 2)[1])
    # The next run of the task goes on with the same job.
    assert (job_of(testbed, "job_kept"), Path(f"/proc/{job}").exists()) == (job, True)
    (testbed.home / "job-job_kept-may-end").touch()
    testbed.order(pod_of(run, "fails"), Order.FAIL)
    run.wait_for_times(2, "fails")
    for task in ("exhausted", "never_starts"):
        run.wait_for_end(task)
    run.wait_for_code("relaunched")
    run.release()
    states = {task: runs[task].wait_for_end(task).state for task in STORIES}
    failed = ("exhausted", "out_of_memory", "never_starts", "times_out", "marked")
    ended = dict.fromkeys(STORIES, "success") | dict.fromkeys(failed, "failed")
    assert states == ended | {"run_times_out": "skipped"}
    return runs


def pod_of(run: Run, task: str) -> str:
    """Return the first pod of a task."""
    return run.wait_for_pods(task, 1)[0]


def job_of(testbed: Testbed, task: str) -> int:
    """Return the remote job of a task."""
    return int((testbed.home / f"job-{task}").read_text())


def begin_long_ago(testbed: Testbed, run: Run) -> None:
    """Date the start of a DAG run back: nobody waits until its time is over."""
    earlier = text("UPDATE dag_run SET start_date = start_date - interval '1 day' WHERE run_id = :run_id")
    with testbed.records.engine.begin() as connection:
        connection.execute(earlier, {"run_id": run.run_id})


# ---------------------------------------------------------------------- all tell the same


@pytest.mark.parametrize("task", STORIES)
def test_everyone_tells_the_same(witness: Witness, runs: dict[str, Run], task: str) -> None:
    expected = expected_of(task)

    def told() -> Counter[tuple[str, str]]:
        found = witness.told(runs[task], task)
        return found if FORWARDS_SIGTERM or task != "job_kept" else without_on_kill(found)

    wait_for(f"all are told of {task}", lambda: expected <= told(), show=told)
    assert told() == expected


def expected_of(task: str) -> Counter[tuple[str, str]]:
    """Return how often each channel is to tell what."""
    story = STORIES[task]
    found: Counter[tuple[str, str]] = Counter()
    for channel, times in story.told_by.items():
        if channel is Channel.LOG and not HAS_JSON_LOGS:
            continue
        # It is told while Airflow, if anybody, knows why.
        source = "WORKER" if channel is Channel.ON_KILL and story.source == "EXECUTOR" else story.source
        has_source = channel not in (Channel.SPAN, Channel.LOG)
        found[channel, f"{story.why} {source}" if has_source else story.why] += times
    return found if FORWARDS_SIGTERM or task != "job_kept" else without_on_kill(found)


def without_on_kill(told: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Leave out what is left to chance."""
    return Counter({item: times for item, times in told.items() if item[0] != Channel.ON_KILL})


def test_the_documentation_has_the_same_table() -> None:
    lines = (DOCS / "execution-context.md").read_text().splitlines()
    head = lines.index(f"| a task is, or | category / reason | {' | '.join(COLUMNS)} |")
    assert lines[head + 2 :][: len(STORIES) + 1] == [*(story.row() for story in STORIES.values()), ""]


def test_each_failure_is_counted_once_with_its_tags(
    runs: dict[str, Run], receiver: Collector | StatsdServer
) -> None:
    lost = {"reason": "WORKER_TERMINATION", "dag_id": "told"}
    expected = Counts(
        [
            *(metric for story in STORIES.values() for metric in story.counted),
            *[Metric.of("task_instance.infrastructure_retry", attempt="1", **lost)] * 2,
            Metric.of("task_instance.infrastructure_budget_exhausted", **lost),
        ]
    )
    names = {counter.name for counter in metrics.COUNTERS}

    def received() -> Counts:
        return Counts({metric: n for metric, n in receiver.counts().items() if metric.name in names})

    wait_for("all has arrived", lambda: expected <= received(), show=received)
    assert received() == expected
    tags = {(metric.name, frozenset(name for name, _ in metric.tags)) for metric in expected}
    assert tags == {(counter.name, frozenset(counter.tags)) for counter in metrics.COUNTERS}


def test_the_report_and_the_page_have_the_same_numbers(
    testbed: Testbed, witness: Witness, runs: dict[str, Run]
) -> None:
    summary = witness.page("failures/summary")
    report = json.loads(command(testbed, "report"))
    moving = ("since", "until", "buckets")
    assert {key: report[key] for key in report if key not in moving} == {
        key: summary[key] for key in summary if key not in moving
    }
    assert report["failures"] == sum(story.told_by[Channel.SPAN] for story in STORIES.values())
    others = Counter(story.category for story in OTHERS)
    assert {category: count for category, count in report["others"].items() if count} == others


def test_the_history_of_a_task_tells_the_same(testbed: Testbed, runs: dict[str, Run]) -> None:
    run, story = runs["exhausted"], STORIES["exhausted"]
    rows = json.loads(command(testbed, "history", run.dag_id, run.run_id, "exhausted"))
    told = [f"{row['context']['category']} {row['context']['reason']}" for row in rows]
    assert told == [story.why] * story.told_by[Channel.AUDIT_LOG]


def command(testbed: Testbed, *words: str) -> str:
    """Run a command of ours, and return its output as JSON."""
    # Before anything else, Airflow would print where it sends its metrics.
    env = {**testbed.deployment.environment, "AIRFLOW__METRICS__OTEL_ON": "False"}
    done = run_to_end([*AIRFLOW_COMMAND, "kubernetes-resilience", *words, "--output", "json"], env)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs("chromium", find_chromium())
def test_the_pages_show_it(testbed: Testbed, runs: dict[str, Run]) -> None:
    url = testbed.deployment.url
    with open_browser() as browser, log_in(browser, url, testbed.api.token) as context:
        page = context.new_page()
        for task, story in STORIES.items():
            page.goto(f"{url}/{launches(runs[task].dag_id, task, runs[task].run_id)}")
            shown = page.locator("main[aria-busy=false]").inner_text()
            assert shown.count(story.shown) == story.told_by[Channel.PAGE_OF_LAUNCHES], (task, shown)
        for other in ("", *sorted({story.category for story in OTHERS})):
            page.goto(f"{url}/{FAILURES}?other={other}")
            page.locator("#rows tbody tr").first.wait_for()
            shown = page.locator("#rows").inner_text()
            for story in STORIES.values():
                is_there = story.category == other if story in OTHERS else not other
                assert (story.shown in shown) == is_there, (story, shown)


# ---------------------------------------------------------------------- remote jobs


def test_a_remote_job_is_kept_when_the_infrastructure_takes_its_worker(runs: dict[str, Run]) -> None:
    assert runs["job_kept"].steps("job_kept") == ["begun", "begun", "ended"]


def test_a_remote_job_is_cancelled_when_a_person_ends_its_task(
    testbed: Testbed, runs: dict[str, Run]
) -> None:
    job = job_of(testbed, "job_cancelled")
    wait_for("it is gone", lambda: not Path(f"/proc/{job}").exists())


# ---------------------------------------------------------------------- traces and logs


def spans_of(collector: Collector, task: str, count: int) -> list[Span]:
    """Return the spans of a task's launches, when all are received."""

    def enough() -> list[Span]:
        found = collector.spans(f"launch.{task}")
        return found if len(found) >= count else []

    found = wait_for(f"{count} launches of {task} are received", enough)
    assert len(found) == count
    return found


@pytest.mark.parametrize(
    ("task", "cause", "decision"),
    [
        ("job_kept", "evicted-by-api", "relaunch"),
        ("relaunched", "evicted-by-node-pressure", "relaunch"),
        ("out_of_memory", "worker-out-of-memory", "count"),
    ],
)
def test_a_launch_is_a_span_and_a_line_of_the_log_with_values(
    witness: Witness, collector: Collector, runs: dict[str, Run], task: str, cause: str, decision: str
) -> None:
    pods = runs[task].pods(task)
    spans = spans_of(collector, task, len(pods))
    assert [attributes_of(span)["k8s.pod.name"] for span in spans] == pods
    failed = [span.status.code == Status.STATUS_CODE_ERROR for span in spans]
    assert failed == [True, False][: len(pods)]
    first = attributes_of(spans[0])
    assert first["airflow_resilience.cause"] == cause
    assert first["airflow_resilience.decision"] == decision
    assert first["airflow.dag_run.run_id"] == runs[task].run_id
    assert first["k8s.node.name"].startswith("lab-node")
    assert len({(span.trace_id, span.parent_span_id) for span in spans}) == 1
    assert spans[0].parent_span_id
    for span in spans:
        start, end = span.start_time_unix_nano, span.end_time_unix_nano
        times = {event.name: event.time_unix_nano for event in span.events}
        assert start <= times["pod scheduled"] <= end
        assert start <= times.get("worker started", start) <= end
    if HAS_JSON_LOGS:
        (line,) = (line for line in witness.logged(task) if "cause" in line)
        assert (line["cause"], line["decision"], line["pod"]) == (cause, decision, pods[0])
        assert line["node"] == first["k8s.node.name"]
        shared = {"policy", "rule", "launch", "attempt"} & line.keys()
        assert {name: line[name] for name in shared} == {
            name: first[f"airflow_resilience.{name}"] for name in shared
        }


@from_3_2_on
def test_the_launches_and_the_worker_are_in_one_trace_below_the_task(
    collector: Collector, runs: dict[str, Run]
) -> None:
    spans = spans_of(collector, "job_kept", 2)
    begun = spans[1].start_time_unix_nano
    # The one that was evicted may have sent one, too.
    (worker,) = wait_for(
        "the last worker's span is received",
        lambda: [span for span in collector.spans("worker.job_kept") if span.start_time_unix_nano >= begun],
    )
    (task,) = wait_for("the task's span is received", lambda: collector.spans("task_run.job_kept"))
    assert {span.trace_id for span in (*spans, worker)} == {task.trace_id}
    assert {span.parent_span_id for span in (*spans, worker)} == {task.span_id}
    assert task.parent_span_id


def log_of(testbed: Testbed, pod: str) -> list[str]:
    """Return what a pod has written to its own file for a first try."""
    (file,) = testbed.home.glob(f"logs-of-workers/{pod}/**/attempt=1.log")
    return [json.loads(line)["event"] for line in file.read_text().splitlines()]


@pytest.mark.parametrize("task", ["exhausted", "relaunched"])
def test_the_log_of_the_next_launch_says_why_there_is_one_before_the_task_has_its_say(
    testbed: Testbed, runs: dict[str, Run], task: str
) -> None:
    events = log_of(testbed, runs[task].pods(task)[-1])
    (line,) = (event for event in events if event.startswith("Try 1 is launched again: "))
    story = STORIES[task]
    assert f"launch 1 in pod {runs[task].pods(task)[0]} on node lab-node" in line
    assert f"{story.category} / {story.reason}" in line
    at = events.index(line)
    assert events[at + 1] == f"{task} works"
    if HAS_JSON_LOGS:
        # What is before it is in a group, which the page folds.
        assert events[at - 1] == "::endgroup::"


@pytest.mark.parametrize("task", STORIES)
def test_each_worker_uploads_its_log_but_one_that_is_lost(
    testbed: Testbed, runs: dict[str, Run], task: str
) -> None:
    run = runs[task]
    testbed.cluster.wait_until_done(run.run_id)
    uploads = testbed.home.glob(f"remote-logs/dag_id={run.dag_id}/*/task_id={task}/*/*")
    lost = STORIES[task].told_by[Channel.SPAN]
    assert {file.name for file in uploads} == set(run.pods(task)[lost:])


@pytest.mark.parametrize("task", ["job_kept", "relaunched"])
def test_the_remote_log_of_a_try_has_the_launch_that_ended(
    testbed: Testbed, runs: dict[str, Run], task: str
) -> None:
    run = runs[task]
    testbed.cluster.wait_until_done(run.run_id)
    page = testbed.api.task_log(run.dag_id, run.run_id, task)
    # Before it, the page names its sources.
    assert page[page.index("::endgroup::") + 1 :] == log_of(testbed, run.pods(task)[-1])
