# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Airflow's API server finds the pages, and tells nobody of Dags that they may not read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.version import Version

pytestmark = pytest.mark.airflow_alone

Answers = dict[str, dict[str, list[object]]]

PAGES = ("/failures", "/dags/d/runs/r/tasks/t/{MAP_INDEX}/launches", "/openapi.json")
MINE, SECRET = (
    f"/api/v1/dags/{dag_id}/dagRuns/run/taskInstances/task/-1/launches" for dag_id in ("mine", "secret")
)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    home = tmp_path_factory.mktemp("airflow-home")
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW__DATABASE__")}
    env |= {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    script = Path(__file__).with_name("api_server.py")
    done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("ANSWERS ")]
    found: Answers = json.loads(line.removeprefix("ANSWERS "))
    return found


def test_a_page_without_data_is_for_everybody(answers: Answers) -> None:
    assert {answers[person][page][0] for person in ("nobody", "joan", "admin") for page in PAGES} == {200}


def test_nobody_anonymous_sees_anything(answers: Answers) -> None:
    data = {path: answer for path, answer in answers["nobody"].items() if path not in PAGES}
    assert len(data) == 5
    assert set(map(tuple, ((status, *told) for status, told in data.values()))) == {(401,)}


def test_whoever_may_not_read_a_dag_sees_none_of_it(answers: Answers) -> None:
    joan = answers["joan"]
    assert joan["/api/v1/failures"] == joan["/api/v1/failures/summary"] == [200, ["mine"]]
    assert joan[SECRET] == [403, []]
    # Before 3.1.7, Airflow looks for a Dag in the path only. What joan may read of this one is nothing.
    by_query = 403 if Version(metadata.version("apache-airflow-core")) >= Version("3.1.7") else 200
    assert joan["/api/v1/failures?dag_id=secret"] == [by_query, []]
    assert joan[MINE][0] == 404


def test_whoever_may_read_all_sees_all(answers: Answers) -> None:
    admin = answers["admin"]
    assert admin["/api/v1/failures"] == admin["/api/v1/failures/summary"] == [200, ["mine", "secret"]]
    assert admin["/api/v1/failures?dag_id=secret"] == [200, ["secret"]]
    assert (admin[MINE][0], admin[SECRET][0]) == (404, 404)


def test_a_program_has_a_token_in_its_header(answers: Answers) -> None:
    assert answers["a program"]["/api/v1/failures"][0] == 200


def test_the_user_interface_is_told_of_the_pages(answers: Answers) -> None:
    assert answers["the user interface"]["/api/v2/plugins"] == [200, ["Launches"]]
