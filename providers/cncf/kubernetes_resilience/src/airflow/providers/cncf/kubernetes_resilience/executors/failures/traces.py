# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
A span for each launch, below the span of its task instance.

Airflow keeps the place of a task instance in its trace in the workload and in the row (``context_carrier``,
in the form of the W3C). The span of the worker has the same parent. A span is made when its launch has ended;
Airflow's batch span processor sends it, in a thread of its own.

.. seealso:: https://airflow.apache.org/docs/apache-airflow/stable/administration-and-deployment/logging-monitoring/traces.html
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from airflow.utils.session import create_session
from opentelemetry.trace import Span, Status, StatusCode, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from airflow.providers.cncf.kubernetes_resilience.executors import upstream
from airflow.providers.cncf.kubernetes_resilience.executors.failures.judge import Keep, Release, Settled
from airflow.providers.cncf.kubernetes_resilience.executors.failures.notifications import fields_of
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.task_instances import read_trace_carriers
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow_resilience.ledger_entries import LedgerEntry

NAMES: Mapping[str, str] = {
    "dag_id": "airflow.dag_id",
    "task_id": "airflow.task_id",
    "run_id": "airflow.dag_run.run_id",
    "try_number": "airflow.task_instance.try_number",
    "map_index": "airflow.task_instance.map_index",
    "namespace": "k8s.namespace.name",
    "pod": "k8s.pod.name",
    "node": "k8s.node.name",
}
"""
Attributes that Airflow's own spans have, and those of OpenTelemetry's conventions, by the names of
:func:`~.fields.fields_of`. Other fields get :data:`PREFIX`.

.. seealso:: https://opentelemetry.io/docs/specs/semconv/resource/k8s/
"""

PREFIX = "airflow_resilience."

WAITING_LIMIT = 2048
"""Launches that wait for the database. Airflow's processor holds as many spans, too, before it drops further
ones."""

log = logging.getLogger(__name__)


class _Ended(NamedTuple):
    launch: Launch
    entry: LedgerEntry | None
    failure: PodFailure | None
    at: int
    """Nanoseconds since 1970."""

    @property
    def ti_ids(self) -> list[str]:
        """The UUIDs that its task instance has had since the launch."""
        later = self.entry.next_ti_id if self.entry else None
        return [self.launch.ti_id, *([later] if later else [])]


class LaunchTraces:
    """Makes the spans of launches that have ended. Without tracing it does nothing."""

    def __init__(self) -> None:
        self._tracer = upstream.find_tracer(__name__)
        self._ended: list[_Ended] = []

    def settled(self, settled: Settled) -> None:
        """Note what was settled about a launch, and acted upon."""
        if self._tracer and _has_ended(settled):
            self._add(settled.launch, settled.entry, settled.failure)

    def cancelled(self, launch: Launch) -> None:
        """Note a launch that is not followed any more: its pod is being deleted."""
        if self._tracer:
            self._add(launch)

    def emit(self) -> None:
        """
        Make the spans of what was noted.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer; they are made later then
        """
        if not self._ended:
            return
        adopted = {ti_id for item in self._ended if item.launch.workload is None for ti_id in item.ti_ids}
        with create_session(scoped=False) as session:
            carriers = read_trace_carriers(adopted, session=session)
        ended, self._ended = self._ended, []
        for item in ended:
            try:
                self._make(item, _carrier_of(item, carriers))
            except Exception:
                log.exception("No span could be made of a launch of %s", item.launch.key)

    def _add(
        self, launch: Launch, entry: LedgerEntry | None = None, failure: PodFailure | None = None
    ) -> None:
        if len(self._ended) < WAITING_LIMIT and (launch.ref or entry):
            self._ended.append(_Ended(launch, entry, failure, time.time_ns()))

    def _make(self, item: _Ended, carrier: Mapping[str, Any]) -> None:
        place = TraceContextTextMapPropagator().extract(carrier)
        parent = get_current_span(place).get_span_context()
        if self._tracer is None or (parent.is_valid and not parent.trace_flags.sampled):
            return  # as Airflow does with its own: a sampler need not ask the parent
        launch = item.launch
        with upstream.with_span_id(_span_id(launch)):
            span = self._tracer.start_span(
                _name(launch), context=place, attributes=_attributes(item), start_time=_start(item)
            )
        _add_events(span, launch)
        if item.failure:
            span.set_status(Status(StatusCode.ERROR, item.failure.reason))
        span.end(max(_end(item), _start(item)))


def _has_ended(settled: Settled) -> bool:
    """Return whether a launch has ended, and no other scheduler has it."""
    outcome = settled.outcome
    return not isinstance(outcome, Keep) and not (isinstance(outcome, Release) and outcome.leaves_pod)


def _name(launch: Launch) -> str:
    key = launch.key
    return f"launch.{key.task_id}" + (f"[{key.map_index}]" if key.map_index >= 0 else "")


def _span_id(launch: Launch) -> int:
    """Return the same for the same pod: two schedulers may see it end, if the first one dies of it."""
    return int.from_bytes(hashlib.blake2b(launch.worker_uid.encode(), digest_size=8).digest())


def _attributes(item: _Ended) -> dict[str, str | int]:
    launch = item.launch
    fields = {NAMES.get(name, PREFIX + name): value for name, value in fields_of(launch, item.entry).items()}
    fields["airflow.task_instance.id"] = launch.ti_id
    if launch.ref:
        fields["k8s.pod.uid"] = launch.ref.uid
    return fields


def _start(item: _Ended) -> int:
    created = item.launch.facts and item.launch.facts.created
    return _nanoseconds(created) if created else item.at


def _end(item: _Ended) -> int:
    worker = item.launch.facts and item.launch.facts.worker
    return _nanoseconds(worker.finished_at) if worker and worker.finished_at else item.at


def _add_events(span: Span, launch: Launch) -> None:
    if facts := launch.facts:
        for name, when in {"pod scheduled": facts.scheduled, "worker started": facts.started}.items():
            if when:
                span.add_event(name, timestamp=_nanoseconds(when))


def _nanoseconds(time_: datetime) -> int:
    return int(time_.timestamp() * 1e9)


def _carrier_of(item: _Ended, carriers: Mapping[str, Any]) -> Mapping[str, Any]:
    if item.launch.workload:
        return item.launch.workload.trace_carrier() or {}
    return next((found for ti_id in item.ti_ids if (found := carriers.get(ti_id))), {})
