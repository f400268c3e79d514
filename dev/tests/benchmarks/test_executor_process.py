# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import executor_process
from benchmarks.executor_process import ExecutorProcess
from benchmarks.processes import cpu_seconds, proportional_set_size

ECHO = """
import json, sys
for line in sys.stdin:
    command = json.loads(line)
    if command["command"] == "crash":
        sys.exit("it is broken")
    print(3 if command["command"] == "messages" else json.dumps(command), flush=True)
"""


@pytest.fixture
def process(tmp_path: Path) -> ExecutorProcess:
    log = tmp_path / "log"
    with log.open("w") as output:
        popen = subprocess.Popen(
            [sys.executable, "-c", ECHO],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            start_new_session=True,
        )
    return ExecutorProcess(popen, log)


def test_each_call_has_its_answer_also_after_a_loop(process: ExecutorProcess) -> None:
    assert process.call("start") == {"command": "start"}
    process.turn(0.5)
    assert process.call("hold", pods=[1]) == {"command": "hold", "pods": [1]}
    process.turn(0.5)
    assert process.halt() == {"command": "run", "pause": 0.5}
    assert process.call("stop") == {"command": "stop"}
    process.end()


def test_a_driver_that_has_ended_is_named_with_its_last_words(process: ExecutorProcess) -> None:
    with pytest.raises(RuntimeError, match=r"the driver ended \(1\):\nit is broken"):
        process.call("crash")
    assert process.log_lines("broken") == 1
    process.end()


def test_an_executor_that_sees_too_few_pods_is_not_measured(
    process: ExecutorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_process, "_EVENTS_TIMEOUT", 0.0)
    process.settle(3, 0.5)
    with pytest.raises(RuntimeError, match="3 events of 4 pods"):
        process.settle(4, 0.5)
    process.end()


def test_memory_and_processor_time_of_this_process() -> None:
    assert proportional_set_size(os.getpid()) > 2**20
    assert cpu_seconds(os.getpid()) > 0
