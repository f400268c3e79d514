# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""An operator with a job elsewhere: the worked example of docs/operators.md."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, Context

from airflow_resilience.context import ExecutionContext, StateChangeCategory


class RemoteJob(BaseOperator):
    """
    Runs a job elsewhere: here, a process that outlives the worker.

    It is kept if the infrastructure takes the worker: the task runs again, and finds it. Otherwise nobody
    wants its result any more.

    :param folder: where jobs are known by their names, and where a file tells a job to end
    """

    template_fields = ("folder",)

    def __init__(self, *, folder: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.folder = folder

    def execute(self, context: Context) -> int:
        """Find the job, or start it; wait for its end."""
        job = self.find() or self.start()
        while self.is_alive(job):
            time.sleep(0.2)
        return job

    def on_kill(self, execution_context: ExecutionContext | None = None) -> None:
        """Cancel the job, unless the task is to go on with it."""
        if execution_context and execution_context.category is StateChangeCategory.INFRASTRUCTURE:
            self.log.info("The job goes on: %s", execution_context.reason)
        elif job := self.find():
            os.kill(job, signal.SIGKILL)

    @property
    def file(self) -> Path:
        """Where the job is known: by a name that is the same in each run of the task."""
        return Path(self.folder) / f"job-{self.task_id}"

    def find(self) -> int | None:
        """Return the job, if there is one."""
        return int(self.file.read_text()) if self.file.exists() else None

    def start(self) -> int:
        """Start the job, which has nothing to do with the worker's processes."""
        script = f"until [ -e {self.file}-may-end ]; do sleep 0.2; done"
        command = f"setsid sh -c '{script}' </dev/null >/dev/null 2>&1 & echo $!"
        self.file.write_text(subprocess.check_output(command, shell=True, env={}, text=True))
        return int(self.file.read_text())

    def is_alive(self, job: int) -> bool:
        """Whether the job goes on."""
        try:
            # Nobody may have waited for it, as long as this machine has nothing else that does.
            return Path(f"/proc/{job}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False
