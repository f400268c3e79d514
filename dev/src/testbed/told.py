# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Why a task has failed, as everybody tells it who tells it: code of users, logs, traces, rows and pages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_resilience.context import ExecutionContext
from testbed.code_journal import JsonLines, append_line

if TYPE_CHECKING:
    from testbed.records import Run
    from testbed.telemetry import Collector
    from testbed.testbed import Testbed

_FILE = "told.jsonl"

API = "kubernetes-resilience/api/v1"
"""Where the pages have their data from, below the address of the API server."""


class Channel(StrEnum):
    """By which one is told why a task has failed, or runs again."""

    LISTENER_IN_WORKER = "RuntimeTaskInstance"
    """A listener is told of a failure, and given the task that runs."""
    LISTENER = "TaskInstance"
    """The same elsewhere: it is given a row."""
    LISTENER_OF_RELAUNCHES = "relaunched 1"
    CALLBACK_IN_WORKER = "callback in the worker"
    CALLBACK_IN_DAG_PROCESSOR = "callback in the DAG processor"
    ON_KILL = "on_kill"
    NEXT_RUN = "next run"
    SPAN = "span of the launch"
    LOG = "log of the scheduler"
    AUDIT_LOG = "audit log"
    PAGE_OF_LAUNCHES = "page Launches"
    PAGE_OF_FAILURES = "page Infrastructure failures"


class Told(NamedTuple):
    """One that was told."""

    who: str
    task_id: str
    why: str
    """Category, reason and source; ``unknown`` if it was told nothing."""


def note(who: str, task_id: str, context: ExecutionContext | None) -> None:
    """Write down who is told what, from any process of the deployment: listeners, callbacks and tasks do."""
    why = in_words(context.to_dict()) if context else "unknown"
    append_line(_FILE, {"who": who, "task_id": task_id, "why": why})


def in_words(fields: dict[str, Any]) -> str:
    """Return category and reason, and the source if that is told."""
    return " ".join(str(fields[name]) for name in ("category", "reason", "source") if name in fields)


class Witness:
    """
    Knows what each channel of a deployment has told.

    :param collector: receives the spans of all processes
    """

    def __init__(self, testbed: Testbed, collector: Collector) -> None:
        self._testbed = testbed
        self._collector = collector
        self._noted = JsonLines(testbed.home / _FILE, lambda noted: Told(**noted))

    def told(self, run: Run, task_id: str) -> Counter[tuple[str, str]]:
        """Return how often each channel has told what about a task, up to now."""
        return Counter(
            [
                # In its first run, a task is told that nothing is known of one before it.
                *(
                    (item.who, item.why)
                    for item in self._noted.read()
                    if item.task_id == task_id and item != (Channel.NEXT_RUN, task_id, "unknown")
                ),
                *((Channel.SPAN, why) for why in self._by_spans(task_id)),
                *((Channel.LOG, in_words(line)) for line in self.logged(task_id) if "category" in line),
                *((Channel.AUDIT_LOG, why) for why in _by_rows(run, task_id)),
                *((Channel.PAGE_OF_LAUNCHES, why) for why in self._by_launches(run, task_id)),
                *((Channel.PAGE_OF_FAILURES, why) for why in self._by_failures(run, task_id)),
            ]
        )

    def logged(self, task_id: str) -> list[dict[str, Any]]:
        """Return the lines of the schedulers' logs, in JSON, that have the task as a value."""
        lines = self._testbed.schedulers.log().splitlines()
        read = [json.loads(line) for line in lines if line.startswith("{")]
        return [line for line in read if line.get("task_id") == task_id]

    def page(self, path: str) -> Any:
        """
        Return the data of a page, as somebody who is logged in.

        :param path: below :data:`API`
        """
        url = f"{self._testbed.deployment.url}/{API}/{path}"
        return self._testbed.api.http.get(url).raise_for_status().json()

    def _by_spans(self, task_id: str) -> Iterator[str]:
        from testbed.telemetry import attributes_of

        prefix = "airflow_resilience."
        for span in self._collector.spans(f"launch.{task_id}"):
            fields = {name.removeprefix(prefix): value for name, value in attributes_of(span).items()}
            if "category" in fields:
                yield in_words(fields)

    def _by_launches(self, run: Run, task_id: str) -> Iterator[str]:
        path = f"dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances/{task_id}/-1/launches"
        for told in self.page(path)["tries"]:
            yield from (in_words(launch["failure"]) for launch in told["launches"] if launch["failure"])
            if told["ended_by"]:
                yield in_words(told["ended_by"])

    def _by_failures(self, run: Run, task_id: str) -> Iterator[str]:
        for path, name in (("failures", "failure"), ("task-failures", "end")):
            for row in self.page(f"{path}?dag_id={run.dag_id}&limit=500")["rows"]:
                if row["task_id"] == task_id:
                    yield in_words(row[name])


def _by_rows(run: Run, task_id: str) -> Iterator[str]:
    for event in ("pod launch failed", "pod execution failed", "task instance failed"):
        yield from (in_words(row["context"]) for row in run.ledger(task_id, event=event))
