# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""One deployment with everything around it: a database, a cluster, Airflow, and ways to meddle."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from anyio.from_thread import start_blocking_portal
from sqlalchemy import create_engine

from cluster_lab.api_proxy import ApiProxy, Hold
from cluster_lab.control_plane import ControlPlane
from cluster_lab.database import EmbeddedDatabase, make_database
from cluster_lab.lab import ClusterLab
from testbed.airflow_client import AirflowClient
from testbed.airflow_configuration import DeploymentSettings
from testbed.airflow_deployment import AirflowDeployment, Component
from testbed.cluster import Cluster, creates_pod
from testbed.code_journal import FOLDER_VARIABLE, Order, open_code_journal, order_file
from testbed.permissions import Account, Permissions
from testbed.records import Outcome, Records, Run
from testbed.schedulers import Schedulers
from testbed.waiting import LONGEST_WAIT, wait_for

Started = TypeVar("Started")

# The files do not change, and to parse them again and again takes time from the workers.
_PARSE_ONCE = {
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
    "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "3600",
}


@dataclass(frozen=True, kw_only=True)
class TestbedSettings:
    """What one testbed differs from another in."""

    home: Path
    """An existing folder, ``AIRFLOW_HOME`` among others."""

    dags: Path
    """The folder of the DAGs."""

    env: Mapping[str, str] = field(default_factory=dict)
    """Airflow configuration on top of :mod:`testbed.airflow_configuration`'s."""

    control_plane: Path | None = None
    """The programs of a real control plane; None: the embedded API server takes its place."""

    nodes: int = 3
    """A node takes 110 pods."""

    shared_logs: bool = False
    """Whether the API server finds the log files of workers, as on a volume that all of them share.
    Otherwise a pod takes its files with it, and what is left is what it has printed."""


@dataclass(frozen=True)
class Testbed:
    """A deployment that runs."""

    __test__ = False  # To pytest its name is that of a class of tests.

    deployment: AirflowDeployment
    schedulers: Schedulers
    lab: ClusterLab
    """The nodes, and what happens to pods on them."""
    cluster: Cluster
    records: Records
    database: EmbeddedDatabase
    proxy: ApiProxy
    """Through which Airflow talks to Kubernetes. The nodes, the control plane and the tests do not."""
    control_plane: ControlPlane | None
    """None if the API server is the embedded one."""
    permissions: Permissions | None
    """What Airflow may do on a real control plane; None: everything."""

    @property
    def api(self) -> AirflowClient:
        """Airflow's REST API, as an administrator."""
        return self.deployment.client

    @property
    def home(self) -> Path:
        """``AIRFLOW_HOME``."""
        return self.records.executions

    def trigger(self, dag_id: str, run_id: str | None = None) -> Run:
        """
        Start a run of a DAG.

        All runs of a DAG are released together (see :meth:`Run.release`).

        :param run_id: what to call it; None: Airflow finds a name
        """
        self.deployment.wait_for_dag(dag_id)
        (self.home / dag_id).mkdir(exist_ok=True)
        return Run(self.records, dag_id, self.api.trigger(dag_id, run_id))

    def end(self, run: Run) -> dict[str, Outcome]:
        """
        Let all tasks of a run come to their end, and wait until no pod of it is in use.

        :return: what has become of those that are not mapped
        """
        run.release()
        outcomes = run.wait_for_all_to_end()
        self.cluster.wait_until_done(run.run_id)
        return outcomes

    @contextmanager
    def configured(self, env: Mapping[str, str], faults: Path) -> Iterator[None]:
        """
        Have one scheduler that is configured otherwise, and command lines too; in the end forget all runs.

        A deployment takes six times as long to start. The rest of it goes on as it was configured.

        :param env: Airflow configuration of schedulers, on top of the deployment's own
        :param faults: what happens to pods
        """
        before = dict(self.deployment.environment)
        self.deployment.environment.update(env)
        try:
            self.lab.use(faults)
            self.schedulers.retire()
            self.restart_ended()
            yield
        finally:
            self.schedulers.retire()
            self.deployment.environment.clear()
            self.deployment.environment.update(before)
            self.proxy.clear()
            self.records.delete_runs()
            self.cluster.clear()

    def restart_ended(self) -> None:
        """Start what has ended again, as a supervisor does, and wait until all of it is healthy."""
        if not self.schedulers.alive:
            self.schedulers.start()
        others = {Component.API_SERVER, Component.DAG_PROCESSOR, Component.TRIGGERER}
        ended = [component for component in others if not self.deployment.components[component].running]
        self.deployment.start_components(*ended)

    @contextmanager
    def replacements_held(self, start: Callable[[], Started], pods: int) -> Iterator[tuple[Started, Hold]]:
        """
        Start runs, and hold each creation of a pod but the first ones for as long as the block lasts.

        :param start: starts them
        :param pods: how many pods they begin with
        """
        with ExitStack() as stack:
            # However long it takes to start all, no pod is there to be lost, and replaced, before.
            with self.proxy.hold(when=creates_pod) as first:
                started = start()
                first.wait_for(pods, LONGEST_WAIT)
                # It is for requests that come from now on.
                held = stack.enter_context(self.proxy.hold(when=creates_pod))
            yield started, held

    def reconnect(self) -> None:
        """
        Have the executor list and watch all pods anew, and tell the scheduler what it makes of that.

        The scheduler is to send a heartbeat each second.
        """
        opened = self.proxy.watches_opened
        self.proxy.expire_watch()
        self.proxy.cut_watches()
        wait_for(
            f"more than {opened} watches were opened",
            lambda: self.proxy.watches_opened > opened,
            show=lambda: self.proxy.watches_opened,
        )
        self.schedulers.wait_for_turns(3)

    def decide(self, pod: str, script: str = "") -> None:
        """
        Let a held pod go on (see ``held.sh``).

        :param pod: its name
        :param script: shell commands that it runs before, and maybe instead of, its worker
        """
        _write_at_once(self.home / "held" / pod, script)

    def order(self, pod: str, order: Order) -> None:
        """
        Tell the task that runs in a pod what to do, without telling its other pods.

        :param pod: its name
        """
        _write_at_once(order_file(self.home, pod), order.value)


def _write_at_once(file: Path, text: str) -> None:
    unfinished = file.with_suffix(".new")
    unfinished.write_text(text)
    unfinished.rename(file)


@contextmanager
def open_testbed(settings: TestbedSettings) -> Iterator[Testbed]:
    """Start a deployment, and stop it in the end."""
    home = settings.home
    kubeconfigs = {account: home / f"kubeconfig-of-{account}" for account in Account}
    (home / "held").mkdir()
    (home / "orders").mkdir()
    with ExitStack() as stack:
        database = make_database()
        stack.enter_context(database)
        control_plane = permissions = None
        if settings.control_plane is not None:
            (home / "control-plane").mkdir()
            control_plane = ControlPlane(settings.control_plane, home / "control-plane")
            stack.enter_context(control_plane)
            permissions = Permissions(settings.control_plane / "kubectl", control_plane.kubeconfig, home)
            permissions.grant()
        deployment = AirflowDeployment(
            DeploymentSettings(
                home=home,
                database_url=database.url,
                kubeconfig=kubeconfigs[Account.SCHEDULER],
                api_server_kubeconfig=kubeconfigs[Account.API_SERVER],
                dags_folder=settings.dags,
                env={FOLDER_VARIABLE: str(home), **_PARSE_ONCE, **settings.env},
            )
        )
        lab = stack.enter_context(_running_lab(settings, control_plane, deployment))
        proxy = stack.enter_context(ApiProxy(lab.kubeconfig))
        for account, kubeconfig in kubeconfigs.items():
            proxy.write_kubeconfig(kubeconfig, permissions.token(account) if permissions else None)
        cluster = stack.enter_context(Cluster.opened(lab.kubeconfig))
        # The tests take the database away, and look at it again when it is back.
        engine = create_engine(database.url, pool_pre_ping=True)
        stack.callback(engine.dispose)
        stack.enter_context(deployment)
        schedulers = Schedulers(deployment, engine, home)
        stack.callback(schedulers.stop)
        yield Testbed(
            deployment,
            schedulers,
            lab,
            cluster,
            Records(engine, lab.journal, open_code_journal(home), home),
            database,
            proxy,
            control_plane,
            permissions,
        )


@contextmanager
def _running_lab(
    settings: TestbedSettings, control_plane: ControlPlane | None, deployment: AirflowDeployment
) -> Iterator[ClusterLab]:
    """Run the nodes, with an API server of their own unless there is one, on a loop in a thread."""
    # Airflow puts in the name of the pod.
    own_logs = {"AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(settings.home / "logs-of-workers" / "$HOSTNAME")}
    lab = ClusterLab(
        kubeconfig=control_plane.kubeconfig if control_plane else settings.home / "kubeconfig-of-the-lab",
        log_dir=settings.home / "pods",
        nodes=settings.nodes,
        embedded=control_plane is None,
        env=deployment.worker_environment() | ({} if settings.shared_logs else own_logs),
    )
    logger = logging.getLogger("cluster_lab")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    with closing(logging.FileHandler(settings.home / "cluster-lab.log")) as log:
        log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(log)
        try:
            with start_blocking_portal() as portal, portal.wrap_async_context_manager(lab.running()):
                yield lab
        finally:
            logger.removeHandler(log)
