# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``airflow kubernetes-resilience report``: the failures of a period in numbers."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from airflow.utils.session import create_session

from airflow.providers.cncf.kubernetes_resilience.cli.errors import CommandError
from airflow.providers.cncf.kubernetes_resilience.cli.output import (
    make_console,
    print_data,
    print_heading,
    print_names,
    print_table,
)
from airflow.providers.cncf.kubernetes_resilience.reporting.failures import (
    LONGEST_TIME,
    Count,
    OutageView,
    Outcome,
    Summary,
    summarise,
)
from airflow_resilience.context import StateChangeCategory
from airflow_resilience.ledger_queries import read_failures, read_outages, read_task_failures

MOST_FAILURES: Final = 100_000
"""Largest number of ledger rows in a report, of the newest ones. No page waits for the report."""

_LONGEST_BAR: Final = 40
"""Characters."""


def report(args: Namespace) -> int:
    """Count the worker pods that were lost in the last days."""
    if not 0 < args.days <= LONGEST_TIME.days:
        raise CommandError(f"--days: got {args.days}; allowed is 1 to {LONGEST_TIME.days}")
    until = datetime.now(UTC)
    since = until - timedelta(days=args.days)
    dag_ids = None if args.dag is None else {args.dag}
    with create_session() as session:
        found = read_failures(since, until, dag_ids=dag_ids, limit=MOST_FAILURES, session=session)
        others = read_task_failures(since, until, dag_ids=dag_ids, limit=MOST_FAILURES, session=session)
        outages = read_outages(until, dag_ids=dag_ids, limit=MOST_FAILURES, session=session)
    view = summarise(found, others, outages, since=since, until=until)
    if view.is_cut or view.others_cut:
        sys.stderr.write(f"there are more than {MOST_FAILURES} failures: only the newest are counted\n")
    if view.unreadable:
        sys.stderr.write(
            f"rows of the ledger that are not of this version and are left out: {view.unreadable}\n"
        )
    if args.output == "table":
        _show(view)
    else:
        print_data(view.model_dump(mode="json"), args.output)
    return 0


def _show(view: Summary) -> None:
    console = make_console()
    print_heading(console, f"Pods lost from {_minute(view.since)} to {_minute(view.until)} UTC")
    print_names(console, _totals(view))
    if view.outages:
        print_heading(console, "Away now")
        print_table(console, [_outage(outage) for outage in view.outages])
    for title, rows in (
        ("Over time", list(_over_time(view))),
        ("Causes", list(_rows("cause", view.causes))),
        ("Nodes", list(_rows("node", view.nodes))),
        ("Dags", list(_rows("dag", view.dags))),
    ):
        if rows:
            print_heading(console, title)
            print_table(console, rows)
    print_heading(console, "Beside these, tasks that failed without losing a pod")
    print_names(console, [(words, view.others[category]) for category, words in _OTHERS])


def _totals(view: Summary) -> Iterator[tuple[str, int]]:
    yield "failures", view.failures
    yield "before the task had begun", view.launches
    yield "while the task was running", view.executions
    yield "launched again, at no cost for the task", view.relaunched
    for outcome, words in _OUTCOMES:
        yield f"  {words}", view.outcomes[outcome]
    yield "at the task's cost", view.outcomes[Outcome.CHARGED]
    yield "  because a budget had run out", view.ran_out


_OUTCOMES: Final = (
    (Outcome.HEALED, "and succeeded"),
    (Outcome.UNDER_WAY, "and goes on"),
    (Outcome.FAILED_AGAIN, "and lost its pod again"),
    (Outcome.FAILED_BY_ITSELF, "and failed by itself, or was marked"),
    (Outcome.NOT_KNOWN, "and was cleared or deleted"),
)


_OTHERS: Final = (
    (StateChangeCategory.APPLICATION, "by themselves"),
    (StateChangeCategory.TIMEOUT, "a time limit was reached"),
    (StateChangeCategory.USER_ACTION, "a person asked for it"),
    (StateChangeCategory.INFRASTRUCTURE, "for the infrastructure"),
)


def _outage(outage: OutageView) -> dict[str, Any]:
    return {
        "what": outage.dependency,
        "since": _minute(outage.since),
        "launches held": outage.held,
        "what was said": outage.message,
    }


def _over_time(view: Summary) -> Iterator[dict[str, Any]]:
    most = max((bucket.relaunched + bucket.charged for bucket in view.buckets), default=0)
    for bucket in view.buckets:
        failures = bucket.relaunched + bucket.charged
        if failures:
            yield {
                "from": _minute(bucket.begins),
                "failures": failures,
                "launched again": bucket.relaunched,
                "at the task's cost": bucket.charged,
                "": "█" * max(1, round(_LONGEST_BAR * failures / most)),
            }


def _rows(title: str, counts: Iterable[Count]) -> Iterator[dict[str, Any]]:
    for count in counts:
        yield {
            title: count.name,
            "failures": count.failures,
            "launched again": count.relaunched,
            "at the task's cost": count.charged,
            "in words": count.in_words,
        }


def _minute(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M")
