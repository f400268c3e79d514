# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Build a real Kubernetes control plane from Debian's packages, and print the folder that it is in.

It holds ``etcd``, ``kube-apiserver``, ``kube-controller-manager``, ``kube-scheduler`` and ``kubectl``, and is
in a cache outside the checkout: ``$CONTROL_PLANE_CACHE``, by default ``airflow-resilience/control-plane`` in
``$XDG_CACHE_HOME`` (``~/.cache``). What is there already is used; only a build needs the network. It needs
neither root nor a compiler, and leaves nothing but the cache.

Needs nothing but Python's standard library.
"""

from __future__ import annotations

import sys
from pathlib import Path

from control_plane_recipe import make
from package_cache import PackageCache, require_debian

CACHE = PackageCache("control-plane", "kubernetes", Path(__file__).with_name("control_plane_recipe.py"))
RELEASE = "bookworm"
"""Later ones do not have the source of the servers, or need another recipe."""


def require() -> None:
    """:raises BuildError: if this machine cannot have a control plane."""
    require_debian("Elsewhere, use the embedded API server, which needs nothing.", RELEASE)


if __name__ == "__main__":
    sys.exit(CACHE.main(str(__doc__).partition("\n\n")[0], require, make))
