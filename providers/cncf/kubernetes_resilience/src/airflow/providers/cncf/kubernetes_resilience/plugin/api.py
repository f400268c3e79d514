# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The JSON API and the pages, an application that Airflow's API server mounts.

Each route with data asks Airflow's auth manager, as Airflow's own audit log does. Pages are shells without
data. A mounted application has no authentication of its own: a route without that dependency is public.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path as FilePath
from typing import Annotated, Final, NamedTuple
from urllib.parse import unquote

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request, Response, status
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from pydantic import AwareDatetime

from airflow.providers.cncf.kubernetes_resilience.get_provider_info import get_provider_info
from airflow.providers.cncf.kubernetes_resilience.reporting.failures import (
    DEFAULT_TIME,
    LONGEST_TIME,
    Filter,
    Outcome,
    Summary,
    outcomes_of,
    summarise,
)
from airflow.providers.cncf.kubernetes_resilience.reporting.launches import show_task_instance
from airflow.providers.cncf.kubernetes_resilience.reporting.views import (
    FailureRow,
    FailureRows,
    TaskFailureRow,
    TaskFailureRows,
    TaskInstanceView,
)
from airflow_resilience.context import StateChangeCategory
from airflow_resilience.ledger_queries import (
    read_failures,
    read_outages,
    read_task_failures,
    read_task_instance,
)
from airflow_resilience.retry_policy.evidence import Phase

MOST_FAILURES: Final = 3_000
"""Largest number of ledger rows in an answer, of the newest ones."""
MOST_EVENTS: Final = 1_000
"""Largest number of audit log rows about one task instance, of the newest ones."""
MOST_ROWS: Final = 500
"""Failures on a page of them."""
_STATIC = FilePath(str(files(__package__) / "static"))

_HEADERS: Final = {
    # Messages of pods are shown as text. The browser would run and load nothing of a message, even by
    # mistake.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}

_MAY_READ = Depends(requires_access_dag("GET", DagAccessEntity.AUDIT_LOG))
"""With a ``dag_id`` in path or query: permission for that Dag's audit log. Without: for any audit log."""

_REFUSALS: Final[dict[int | str, dict[str, object]]] = {
    status.HTTP_401_UNAUTHORIZED: {"description": "nobody is logged in"},
    status.HTTP_403_FORBIDDEN: {"description": "the user may not read the audit log, or not that of the Dag"},
}

_Name = Annotated[str, Path(max_length=250)]


def _refuse_nul(request: Request) -> None:
    """Refuse a request with the character NUL, before Airflow reads permissions from the database."""
    if "\0" in unquote(str(request.url)):
        # The constant of this status has another name in newer releases of the framework.
        raise HTTPException(422, "there is no name with the character NUL")


app = FastAPI(
    dependencies=[Depends(_refuse_nul)],
    title="Kubernetes Resilience",
    version=get_provider_info()["versions"][0],
    description="The worker pods that tasks have lost, why, and what was done about it.",
    # FastAPI's pages load scripts from the internet, which a cluster may not reach.
    docs_url=None,
    redoc_url=None,
)
app.mount("/static", StaticFiles(directory=_STATIC), name="static")


@app.middleware("http")
async def _add_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    response.headers.update(_HEADERS)
    # Data change, and belong to the logged-in user. Files change with the version.
    response.headers["Cache-Control"] = "no-cache" if "/api/" not in request.url.path else "no-store"
    return response


@app.get("/failures", include_in_schema=False)
def failures_page() -> FileResponse:
    """Return the page "Infrastructure failures", without data."""
    return FileResponse(_STATIC / "failures.html")


@app.get("/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/{map_index}/launches", include_in_schema=False)
def launches_page() -> FileResponse:
    """Return the page "Launches" of a task instance, without data: its script reads the address."""
    return FileResponse(_STATIC / "launches.html")


@app.get(
    "/api/v1/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/{map_index}/launches",
    dependencies=[_MAY_READ],
    responses={**_REFUSALS, status.HTTP_404_NOT_FOUND: {"description": "there is no such task instance"}},
    tags=["Launches"],
)
def get_launches(
    dag_id: _Name,
    run_id: _Name,
    task_id: _Name,
    map_index: Annotated[int, Path(ge=-1, lt=2**31, description="-1: the task is not mapped")],
    session: SessionDep,
) -> TaskInstanceView:
    """Return the launches of a task instance, try by try."""
    found = read_task_instance(dag_id, run_id, task_id, map_index, limit=MOST_EVENTS, session=session)
    if found is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "There is no such task instance")
    return show_task_instance(dag_id, run_id, task_id, map_index, found)


class Asked(NamedTuple):
    """The period and the Dags of a request."""

    since: datetime
    until: datetime
    dag_ids: set[str]
    """Dags that the request's user may read."""


# A function: FastAPI before 0.118 does not resolve the annotations of a class.
def read_question(
    user: GetUserDep,
    session: SessionDep,
    since: Annotated[AwareDatetime | None, Query(description="default: seven days ago")] = None,
    until: Annotated[AwareDatetime | None, Query(description="default: now")] = None,
    dag_id: Annotated[str | None, Query(description="failures of this Dag only")] = None,
) -> Asked:
    """Read the period and the Dags of a request."""
    until = until or datetime.now(UTC)
    try:
        since = since or until - DEFAULT_TIME
        # Airflow's type of the column converts them too, and fails where the calendar ends.
        first, last = since.astimezone(UTC), until.astimezone(UTC)
        # The period after ``until`` has to be in the calendar, too.
        is_allowed = timedelta() < last - first <= LONGEST_TIME <= datetime.max.replace(tzinfo=UTC) - last
    except OverflowError:
        is_allowed = False
    if since is None or not is_allowed:
        raise HTTPException(
            422, f"since has to be before until, and {LONGEST_TIME.days} days before it at most"
        )
    readable = get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session)
    return Asked(since, until, readable if dag_id is None else readable & {dag_id})


_Question = Annotated[Asked, Depends(read_question)]


@app.get("/api/v1/failures/summary", dependencies=[_MAY_READ], responses=_REFUSALS, tags=["Failures"])
def get_summary(asked: _Question, session: SessionDep) -> Summary:
    """Return the failures of a time in numbers."""
    since, until, dag_ids = asked
    found = read_failures(since, until, dag_ids=dag_ids, limit=MOST_FAILURES, session=session)
    others = read_task_failures(since, until, dag_ids=dag_ids, limit=MOST_FAILURES, session=session)
    outages = read_outages(datetime.now(UTC), dag_ids=dag_ids, limit=MOST_FAILURES, session=session)
    return summarise(found, others, outages, since=since, until=until)


@app.get("/api/v1/failures", dependencies=[_MAY_READ], responses=_REFUSALS, tags=["Failures"])
def get_failures(
    asked: _Question,
    session: SessionDep,
    cause: str | None = None,
    node: Annotated[str | None, Query(description="unknown: the pod was on none, or it is not known")] = None,
    phase: Phase | None = None,
    outcome: Outcome | None = None,
    relaunched: Annotated[bool | None, Query(description="false: those at the task's cost")] = None,
    ran_out: Annotated[bool | None, Query(description="true: a budget had nothing left")] = None,
    after: Annotated[AwareDatetime | None, Query(description="a part of the time: from then on")] = None,
    before: Annotated[AwareDatetime | None, Query(description="a part of the time: until then")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 50,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> FailureRows:
    """Return the failures that a number of the summary counts, newest first."""
    since, until, dag_ids = asked
    found = read_failures(since, until, dag_ids=dag_ids, limit=MOST_FAILURES, session=session)
    wanted = Filter(
        cause=cause,
        node=node,
        phase=phase,
        outcome=outcome,
        relaunched=relaunched,
        ran_out=ran_out,
        after=after,
        before=before,
    )
    chosen = [item for item in outcomes_of(found.found) if wanted.chooses(item)]
    return FailureRows(
        total=len(chosen),
        is_cut=found.is_cut,
        rows=[FailureRow.of(item) for item in chosen[offset : offset + limit]],
    )


@app.get("/api/v1/task-failures", dependencies=[_MAY_READ], responses=_REFUSALS, tags=["Failures"])
def get_task_failures(
    asked: _Question,
    session: SessionDep,
    category: StateChangeCategory | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 50,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> TaskFailureRows:
    """Return the failures of tasks that did not lose their pod, newest first."""
    since, until, dag_ids = asked
    read = read_task_failures(since, until, dag_ids=dag_ids, limit=MOST_FAILURES, session=session)
    chosen = [item for item in read.found if category in (None, item.context.category)]
    return TaskFailureRows(
        total=len(chosen),
        is_cut=read.is_cut,
        rows=[TaskFailureRow.of(item) for item in chosen[offset : offset + limit]],
    )
