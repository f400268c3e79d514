# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Fetch a MySQL server and a client library from Debian's packages, and print the folder that they are in.

It holds ``server``, a MySQL of Debian's unstable release with all libraries that it loads, and ``client``,
with which Python's driver is compiled. It is in a cache outside the checkout: ``$MYSQL_CACHE``, by default
``airflow-resilience/mysql`` in ``$XDG_CACHE_HOME`` (``~/.cache``). What is there already is used. Nothing is
installed, and root is not needed.

Needs nothing but Python's standard library.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mysql_recipe import make
from package_cache import PackageCache, require_debian

CACHE = PackageCache("mysql", "mysql", Path(__file__).with_name("mysql_recipe.py"))


def require() -> None:
    """:raises BuildError: if this machine cannot have it."""
    require_debian("Elsewhere, the tests run on PostgreSQL only.")


if __name__ == "__main__":
    sys.exit(CACHE.main(str(__doc__).partition("\n\n")[0], require, make))
