# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The builds of the control plane and of MySQL, up to the point where they would take minutes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from breeze.paths import ROOT

SCRIPTS = ROOT / "scripts"


@pytest.fixture
def builder(monkeypatch, tmp_path):
    monkeypatch.setenv("CONTROL_PLANE_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import build_control_plane

    return build_control_plane.CACHE


def run(*options, program="build_control_plane", **env):
    command = [sys.executable, SCRIPTS / f"{program}.py", *options]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)


def built(builder, version, recipe=None):
    place = builder.folder() / f"kubernetes-{version}-{recipe or builder.recipe()}"
    place.mkdir(parents=True)
    return place


def test_what_was_built_is_used(builder):
    place = built(builder, "1.20.2-1")
    assert run().stdout == f"{place}\n"


def test_what_another_recipe_has_built_is_not_used(builder):
    built(builder, "1.20.2-1", recipe="another")
    assert builder.find() is None


def test_of_two_packages_the_one_built_last_is_used(builder):
    old, new = built(builder, "1.20.2-1"), built(builder, "1.20.2-2")
    os.utime(old, (1, 1))
    assert builder.find() == new


def test_the_cache_is_where_caches_belong(builder, monkeypatch):
    monkeypatch.delenv("CONTROL_PLANE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert builder.folder() == Path("/caches/airflow-resilience/control-plane")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/somebody")
    assert builder.folder() == Path("/somebody/.cache/airflow-resilience/control-plane")


@pytest.mark.parametrize("program", ["build_control_plane", "fetch_mysql"])
def test_a_machine_without_the_tools_is_told(program, tmp_path):
    made = run(
        "--check", program=program, PATH="/nowhere", XDG_CACHE_HOME=str(tmp_path), CONTROL_PLANE_CACHE=""
    )
    assert made.returncode == 1
    assert re.search(r"on Debian( bookworm)? only|apt-get was not found", made.stderr)


def test_a_second_build_waits_for_the_first_and_takes_its_result(builder):
    cache = builder.folder()
    cache.mkdir()
    with builder.locked():
        second = subprocess.Popen(
            [sys.executable, SCRIPTS / "build_control_plane.py"],
            env=os.environ | {"CONTROL_PLANE_CACHE": str(cache)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert second.stderr is not None
        if "only" in (said := second.stderr.readline()):
            second.communicate()
            pytest.skip("this machine cannot build")
        assert "another build is going on" in said
        place = built(builder, "1.20.2-1")
    assert second.communicate()[0] == f"{place}\n"


@pytest.mark.usefixtures("builder")
def test_sources_of_apt_get_source_packages():
    from control_plane_recipe import with_source_packages

    source = "[signed-by=k.asc] http://mirror.test/debian bookworm main\n"
    assert with_source_packages(f"# comment\ndeb {source}") == f"# comment\ndeb {source}deb-src {source}"
    stanza = "Types: deb\nURIs: http://mirror.test/debian\nSuites: bookworm\n"
    assert with_source_packages(stanza) == stanza.replace("deb\n", "deb deb-src\n", 1)


@pytest.mark.usefixtures("builder")
def test_mysql_comes_from_where_the_release_of_this_machine_comes_from(monkeypatch):
    import mysql_recipe

    mirrors = ("some http://a.test/debian/", "other http://b.test/", "some http://c.test/debian/")
    listed = subprocess.CompletedProcess([], 0, stdout="\n".join([*mirrors, *mirrors]))
    monkeypatch.setattr(mysql_recipe.subprocess, "run", lambda *_, **__: listed)
    monkeypatch.setattr(mysql_recipe, "_release", lambda: "some")
    assert mysql_recipe._mirrors() == ["http://a.test/debian/", "http://c.test/debian/"]
    monkeypatch.setattr(mysql_recipe, "_release", lambda: "none")
    with pytest.raises(mysql_recipe.BuildError, match="no mirror"):
        mysql_recipe._mirrors()
