# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The control plane itself; ``./breeze testing conformance`` says where its programs are."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from cluster_lab.control_plane import ControlPlane
from cluster_lab.managed_process import ProcessError

BINARIES = os.environ.get("CONTROL_PLANE_BINARIES")

pytestmark = [pytest.mark.long, pytest.mark.control_plane]


def test_nothing_is_left_of_one_that_cannot_start(tmp_path):
    binaries = tmp_path / "binaries"
    binaries.mkdir()
    for name in ("etcd", "kube-controller-manager", "kube-scheduler"):
        (binaries / name).symlink_to(Path(BINARIES) / name)
    broken = binaries / "kube-apiserver"
    broken.write_text("#!/bin/sh\necho what is wrong\nexit 3\n")
    broken.chmod(0o755)
    (tmp_path / "home").mkdir()
    before = _children()

    with pytest.raises(ProcessError, match=r"kube-apiserver ended \(3\):\nwhat is wrong"):
        ControlPlane(binaries, tmp_path / "home").__enter__()

    assert _children() == before


def _children():
    return {child.pid for child in psutil.Process().children(recursive=True)}
