# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The tests that state what an API server does, on a real one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from breeze.control_plane import control_plane_binaries
from breeze.paths import DEV, relative
from breeze.steps import console, run_tool
from cluster_lab.control_plane import ControlPlane

_TESTS = DEV / "tests" / "conformance"
#: What needs a cluster to itself: the kubelet's nodes must be the only ones.
_OWN_CLUSTER_TESTS = (_TESTS, DEV / "tests" / "control_plane", DEV / "tests" / "kubelet")
#: A TLS connection says goodbye in the background, for which the event loop of a test does not wait.
_PYTEST_OPTIONS = ("-W", "ignore:unclosed:ResourceWarning")


def run_conformance(kubeconfig: Path | None = None, extra: Sequence[str] = ()) -> int:
    """Run the conformance tests, which ``dev-tests`` runs on the embedded API server, on a real one.

    With them go the tests of the control plane itself and of the lab's nodes, unless a cluster is given.

    :param kubeconfig: of a cluster whose controllers run; None: of a control plane that is started for it.
    :param extra: arguments for pytest.
    :returns: pytest's exit code, or 1 if there is no control plane on this machine.
    """
    if kubeconfig is not None:
        env = {"CONFORMANCE_KUBECONFIG": str(kubeconfig.absolute())}
        return run_tool("pytest", *_PYTEST_OPTIONS, relative(_TESTS), *extra, env=env)
    binaries = control_plane_binaries()
    if binaries is None:
        return 1
    with _control_plane(binaries) as env:
        tests = map(relative, _OWN_CLUSTER_TESTS)
        return run_tool("pytest", *_PYTEST_OPTIONS, *tests, *extra, env=env)


@contextmanager
def _control_plane(binaries: Path) -> Iterator[dict[str, str]]:
    with (
        tempfile.TemporaryDirectory(prefix="control-plane-") as folder,
        ControlPlane(binaries, Path(folder)) as control_plane,
    ):
        # Its cache now begins late in the cluster's history, as with one that has run for a while; from a
        # new one every version can be watched.
        control_plane.kill_apiserver()
        control_plane.start_apiserver()
        console.print(f"The control plane runs: {control_plane.url}")
        yield {
            "CONFORMANCE_KUBECONFIG": str(control_plane.kubeconfig),
            "CONFORMANCE_ETCD": control_plane.etcd_url,
            "CONTROL_PLANE_BINARIES": str(binaries),
        }
