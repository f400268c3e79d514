# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A span for each launch, below the span of its task instance."""

from __future__ import annotations

from datetime import datetime

import pytest
from airflow.version import version
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from airflow.providers.cncf.kubernetes_resilience.executors import upstream
from airflow.providers.cncf.kubernetes_resilience.executors.failures import traces
from airflow.providers.cncf.kubernetes_resilience.executors.failures.notifications import fields_of

from ....support import manifests as m
from ....support.harness import statements
from .test_executions import lose, run_again

TRACE, PARENT = 0xABCDEF, 0x123456
CARRIER = {"traceparent": f"00-{TRACE:032x}-{PARENT:016x}-01"}
UNSAMPLED = {"traceparent": f"00-{TRACE:032x}-{PARENT:016x}-00"}


@pytest.fixture
def exporter(monkeypatch) -> InMemorySpanExporter:
    """Spans that were made, of a deployment with traces."""
    options = {}
    if tuple(map(int, version.split(".")[:2])) >= (3, 2):
        from airflow._shared.observability.traces import OverrideableRandomIdGenerator

        options["id_generator"] = OverrideableRandomIdGenerator()
    provider = TracerProvider(**options)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(upstream, "find_tracer", provider.get_tracer)
    return exporter


@pytest.fixture
def traced(queued_ti, session):
    """Give a function that returns a queued task instance with a place in a trace."""

    def make(carrier=CARRIER, **options):
        ti = queued_ti(**options)
        ti.context_carrier = carrier
        session.commit()
        return ti

    return make


def names(exporter):
    return [span.name for span in exporter.get_finished_spans()]


def test_a_launch_that_failed_and_the_one_that_runs_are_two_spans_below_the_task(exporter, start, traced):
    harness = start()
    ti = traced()
    first = harness.launch(ti)
    harness.observe(first, m.evicted())
    (failed,) = exporter.get_finished_spans()
    second = harness.created()
    harness.begin(ti, second)
    harness.set_state(ti, "success")
    harness.observe(second, m.succeeded())

    _, succeeded = spans = exporter.get_finished_spans()
    assert {(span.context.trace_id, span.parent.span_id) for span in spans} == {(TRACE, PARENT)}
    assert names(exporter) == ["launch.task", "launch.task"]
    assert [span.attributes["airflow_resilience.launch"] for span in spans] == [1, 2]
    assert [span.attributes["k8s.pod.name"] for span in spans] == [first.name, second.name]
    assert [span.status.is_ok for span in spans] == [False, True]
    known = {
        "airflow.dag_id": ti.dag_id,
        "airflow.dag_run.run_id": ti.run_id,
        "airflow.task_instance.id": str(ti.id),
        "airflow.task_instance.try_number": 1,
        "k8s.node.name": "node-1",
        "k8s.pod.uid": first.ref.uid,
        "airflow_resilience.category": "INFRASTRUCTURE",
        "airflow_resilience.decision": "relaunch",
    }
    assert known.items() <= failed.attributes.items()
    assert "airflow_resilience.decision" not in succeeded.attributes


def test_it_has_the_times_of_the_pod(exporter, start, traced):
    harness = start()
    pod = harness.launch(traced())
    times = {
        name: f"2026-03-01T12:00:{second:02}Z"
        for second, name in enumerate(("created", "scheduled", "started", "ended"))
    }
    pod.become(m.evicted())
    pod.manifest["metadata"]["creationTimestamp"] = times["created"]
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": times["scheduled"]}
    pod.manifest["status"]["conditions"] = [condition]
    state = {"exitCode": 137, "startedAt": times["started"], "finishedAt": times["ended"]}
    pod.manifest["status"]["containerStatuses"] = [{"name": "base", "state": {"terminated": state}}]
    harness.observe(pod)
    (span,) = exporter.get_finished_spans()
    events = {event.name: event.timestamp for event in span.events}
    found = [span.start_time, events["pod scheduled"], events["worker started"], span.end_time]
    assert found == [int(datetime.fromisoformat(at).timestamp()) * 10**9 for at in times.values()]


def test_a_lost_run_and_its_next_run_are_in_one_trace(exporter, start, traced):
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET="1")
    ti = traced()
    key, first = ti.key, harness.launch(ti)
    harness.begin(ti, first)
    lose(harness, first)
    lose(harness, run_again(harness, key))
    spans = exporter.get_finished_spans()
    assert {(span.context.trace_id, span.parent.span_id) for span in spans} == {(TRACE, PARENT)}
    assert [span.attributes["airflow_resilience.attempt"] for span in spans] == [1, 2]
    assert [span.attributes["airflow_resilience.decision"] for span in spans] == ["relaunch", "count"]


def test_an_adopted_launch_has_the_same_parent_and_two_schedulers_make_the_same_span(
    exporter, start, successor, traced
):
    ti = traced()
    pod = start().launch(ti)
    spans = []
    for _ in range(2):
        heir = successor()
        heir.adopt(ti)
        pod.become(m.succeeded())
        heir.set_state(ti, "running", hostname=pod.name)
        heir.parts.traces.cancelled(heir.registry.get(ti.key))
        heir.parts.traces.emit()
        spans.append(exporter.get_finished_spans()[-1])
    assert {(span.context.trace_id, span.parent.span_id) for span in spans} == {(TRACE, PARENT)}
    if tuple(map(int, version.split(".")[:2])) >= (3, 2):
        assert len({span.context.span_id for span in spans}) == 1


def test_a_launch_that_is_taken_back_is_a_span_too(exporter, start, traced):
    harness = start()
    ti = traced()
    harness.launch(ti)
    harness.executor.revoke_task(ti=ti)
    harness.executor.sync()
    assert names(exporter) == ["launch.task"]


def test_a_run_that_is_not_sampled_has_no_span(exporter, start, traced):
    harness = start()
    harness.observe(harness.launch(traced(UNSAMPLED)), m.evicted())
    assert names(exporter) == []


def test_without_a_place_in_a_trace_it_is_a_root(exporter, start, traced):
    harness = start()
    harness.observe(harness.launch(traced({})), m.evicted())
    (span,) = exporter.get_finished_spans()
    assert span.parent is None


def test_what_cannot_be_traced_costs_a_line(exporter, start, traced, monkeypatch, caplog):
    harness = start()
    monkeypatch.setattr(traces, "_attributes", lambda item: 1 / 0)
    ti = traced()
    harness.observe(harness.launch(ti), m.evicted())
    assert "No span could be made" in caplog.text
    assert harness.created().launch_number == 2


def test_without_traces_nothing_is_built(start, traced, monkeypatch, session):
    harness = start()
    monkeypatch.setattr(traces, "_Ended", lambda *args: pytest.fail("built"))
    pod = harness.launch(traced())
    harness.observe(pod, m.evicted())
    with statements(session) as asked:
        harness.parts.traces.emit()
    assert asked == []


def test_fields_are_short_and_of_known_names(exporter, start, traced):
    harness = start()
    ti = traced()
    pod = harness.launch(ti)
    launch = harness.registry.get(ti.key)
    harness.observe(pod, m.image_pull_error())
    assert set(fields_of(launch)) == {
        *("dag_id", "task_id", "run_id", "map_index", "try_number"),
        *("launch", "namespace", "pod", "node"),
    }
