# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The pages in a real Chromium, on Airflow's own API server: what one can do, and what pods cannot."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from pictures.api_server import open_api_server
from pictures.browser import find_chromium, log_in, open_browser
from pictures.places import FAILURES, HELD, QUIET, RUN_ID, STORY, UNTOUCHED, launches
from testbed.airflow_deployment import AirflowDeployment
from testbed.database import execute
from testbed.packages import needs

pytestmark = needs("chromium", find_chromium())

PATIENCE = 60_000
"""Milliseconds that nothing here needs, even while other tests keep the machine busy."""


@pytest.fixture(scope="module")
def server() -> Iterator[AirflowDeployment]:
    with open_api_server() as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Without it, what is expected has five seconds, whatever a page has.
    expect.set_options(timeout=PATIENCE)
    with open_browser() as browser:
        yield browser


@pytest.fixture
def page(server, browser) -> Iterator[Page]:
    """A page that complains of nothing: every error of a script, and everything that the browser refuses."""
    complaints: list[str] = []
    with log_in(browser, server.url, server.client.token) as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type == "error" else None
        )
        yield page
    assert [text for text in complaints if "Failed to load resource" not in text] == []


def go(page: Page, server: AirflowDeployment, address: str) -> None:
    page.goto(f"{server.url}/{address}")
    expect(page.locator("main")).to_have_attribute("aria-busy", "false")


def tile(page: Page, words: str) -> Locator:
    return page.locator(".tile").filter(has=page.get_by_text(words, exact=True))


def number_of(page: Page, words: str) -> int:
    return int(tile(page, words).locator(".number").inner_text().replace(",", ""))


@pytest.mark.parametrize(
    "words", ["launched again", "healed", "lost again", "at the task's cost", "budgets ran out"]
)
def test_each_number_leads_to_its_rows(page, server, words):
    go(page, server, FAILURES)
    number = number_of(page, words)
    assert 0 < number < number_of(page, "pods lost")
    tile(page, words).click()
    expect(page.locator("#rows h2")).to_have_text(re.compile(rf"^{number} pod"))
    expect(page.locator("#rows h2")).to_be_focused()


def test_tasks_that_failed_without_losing_a_pod_are_told_apart_and_lead_to_their_rows(page, server):
    go(page, server, FAILURES)
    pods = number_of(page, "pods lost")
    button = page.locator(".others button", has_text="failed by themselves")
    number = int(button.locator("b").inner_text())
    button.click()
    expect(page.locator("#rows h2")).to_have_text(re.compile(rf"^{number} task"))
    expect(page.locator("#rows tbody tr")).to_have_count(number)
    expect(page.locator("#rows tbody")).to_contain_text("Its own code raised an exception.")
    page.reload()
    expect(page.locator("#rows h2")).to_have_text(re.compile(rf"^{number} task"))
    page.locator("#rows").get_by_role("button", name="Show all").click()
    expect(page.locator("#rows h2")).to_have_text(f"{pods} pods")


def test_a_try_says_what_has_ended_it(page, server):
    go(page, server, launches(STORY))
    ended = page.locator(".try", has_text="Try 2").locator(".ended")
    expect(ended).to_contain_text(
        "Its own code raised an exception. APPLICATION / TASK_ERROR, noticed by WORKER"
    )
    expect(ended.locator("pre")).to_contain_text("builtins.ValueError: the file of yesterday has 0 rows")


def test_lists_lead_to_their_rows_and_rows_can_be_paged(page, server):
    go(page, server, FAILURES)
    entry = page.locator(".list", has_text="Nodes").locator(".entry").first
    number = int(entry.locator(".count").inner_text())
    entry.click()
    expect(page.locator("#rows h2")).to_have_text(f"{number} pods")
    shown = page.locator("#rows tbody tr")
    expect(shown).to_have_count(25)
    page.get_by_role("button", name="Show 25 more").click()
    expect(shown).to_have_count(50)
    page.reload()
    expect(page.locator("#rows h2")).to_have_text(f"{number} pods")


def test_what_is_away_stands_above_all_and_at_what_is_held_for_it(page, server):
    go(page, server, FAILURES)
    away = "registry/registry.example.com is away"
    expect(page.get_by_role("status")).to_contain_text(away)
    expect(page.get_by_role("status")).to_contain_text("1 launch held until it is back, at no cost.")
    go(page, server, launches(HELD))
    expect(page.locator(".launch").last.locator(".times")).to_contain_text(away)


def test_a_node_that_was_suspect_says_so(page, server):
    go(page, server, FAILURES)
    nodes = page.locator(".list", has_text="Nodes").locator(".entry")
    expect(nodes.filter(has_text="suspect, last at").first).to_contain_text("launches preferred other nodes")


def test_a_dag_narrows_everything_down(page, server):
    go(page, server, FAILURES)
    page.locator(".entry", has_text=STORY).click()
    expect(page.locator(".scope")).to_contain_text(STORY)
    expect(page.locator(".tile .number").first).to_have_text("4")
    page.get_by_role("button", name="Show all").first.click()
    expect(page.locator(".scope")).to_have_count(0)


def test_bars_by_keyboard(page, server):
    go(page, server, FAILURES)
    bars = page.locator(".bar")
    assert bars.count() > 20
    assert page.locator(".bar[tabindex='0']").count() == 1
    page.locator(".bar[tabindex='0']").focus()
    page.keyboard.press("End")
    expect(bars.last).to_be_focused()
    page.keyboard.press("ArrowLeft")
    label = page.evaluate("document.activeElement.getAttribute('aria-label')")
    number = int(re.search(r": (\d+) pods? lost", label)[1])
    page.keyboard.press("Enter")
    expect(page.locator("#rows h2")).to_have_text(re.compile(rf"^{number} pods?$"))


def test_bars_are_as_high_as_their_numbers(page, server):
    go(page, server, FAILURES)
    heights = page.locator(".bar").evaluate_all(
        """bars => bars.map(bar => [
            Number(bar.getAttribute("aria-label").match(/: (\\d+) pod/)[1]),
            [...bar.children].reduce((sum, part) => sum + part.getBoundingClientRect().height, 0),
        ])"""
    )
    (most, highest) = max(heights)
    assert highest > 50
    assert all(height == pytest.approx(highest * number / most, abs=1.5) for number, height in heights)


def test_a_shorter_time_has_fewer_failures(page, server):
    go(page, server, FAILURES)
    of_week = number_of(page, "pods lost")
    page.get_by_role("button", name="24 hours").click()
    expect(page.get_by_role("button", name="24 hours")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".tile .number").first).not_to_have_text(str(of_week))
    assert 0 < number_of(page, "pods lost") < of_week


def test_what_a_pod_has_said_is_text(page, server):
    go(page, server, launches(STORY))
    page.locator("summary").last.click()
    said = page.locator("pre").last
    expect(said).to_contain_text("<img src=x onerror=")
    assert page.locator("pre img").count() == 0
    assert page.title() == "Launches"


def test_the_story_of_a_task(page, server):
    go(page, server, launches(STORY))
    newest, own, oldest = page.locator(".try").all()
    expect(newest).to_contain_text("infrastructure retries 1 of 5")
    expect(newest.locator(".launch").last).to_contain_text("running")
    expect(own.locator(".launch")).to_have_class("launch failed")
    expect(oldest.locator(".launch")).to_have_count(3)
    expect(oldest.locator(".launch").last).to_contain_text("137 (SIGKILL)")
    expect(oldest.get_by_role("link", name="Log")).to_have_attribute("href", re.compile(r"\?try_number=1$"))


def test_a_task_without_trouble_and_one_without_a_launch(page, server):
    go(page, server, launches(QUIET))
    expect(page.locator(".launch")).to_have_count(1)
    expect(page.locator(".budgets")).to_have_text(re.compile("^retries 0 of 0$"))
    go(page, server, launches(UNTOUCHED))
    expect(page.locator(".notice")).to_contain_text("No launch yet")


def test_it_follows_a_task_that_runs(page, server):
    go(page, server, launches(STORY))
    page.locator("summary").last.click()
    expect(page.locator(".live")).to_be_visible()
    change = (
        f"UPDATE task_instance SET state = :to, end_date = now() WHERE dag_id = '{STORY}' AND state = :at"
    )
    execute(server.database_url, change, to="success", at="running")
    try:
        expect(page.locator(".live")).to_have_count(0)
        expect(page.locator(".launch").nth(1)).to_contain_text("success")
        # What somebody has opened stays open.
        expect(page.locator("pre").last).to_be_visible()
    finally:
        execute(server.database_url, change.replace("now()", "NULL"), to="running", at="success")


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [
        (FAILURES, 401, "not logged in"),
        (FAILURES, 500, "could not answer"),
        (launches(STORY), 403, "may not read"),
        (launches(STORY), None, "does not answer"),
    ],
)
def test_an_error_is_said_and_can_be_tried_again(page, server, address, status, words):
    def refuse(route):
        if status is None:
            route.abort()
        else:
            route.fulfill(status=status, json={"detail": "Detail"})

    page.route("**/api/v1/**", refuse)
    go(page, server, address)
    expect(page.get_by_role("alert")).to_contain_text(words)
    page.unroute("**/api/v1/**")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator(".tile, .try").first).to_be_visible()


def test_airflow_shows_both_pages_in_its_own_colours(page, server):
    page.goto(f"{server.url}/dags/{STORY}/runs/{RUN_ID}/tasks/load/plugin/launches")
    frame = page.frame_locator("iframe")
    expect(frame.locator(".try")).to_have_count(3)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        expect(frame.locator("html")).to_have_attribute("data-theme", scheme)
        theirs = page.evaluate(
            """() => {
                const probe = document.body.appendChild(document.createElement("div"));
                probe.style.backgroundColor = "var(--chakra-colors-bg, red)";
                return getComputedStyle(probe).backgroundColor;
            }"""
        )
        expect(frame.locator("body")).to_have_css("background-color", theirs)


def test_a_link_leads_out_of_the_frame(page, server):
    page.goto(f"{server.url}/plugin/infrastructure-failures")
    frame = page.frame_locator("iframe")
    frame.locator("td .link", has_text=STORY).first.click()
    page.wait_for_url(f"**/dags/{STORY}/runs/*/tasks/load/plugin/launches")
    expect(page.frame_locator("iframe").locator(".try")).to_have_count(3)


def test_nothing_is_loaded_from_elsewhere(page, server):
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for address in (FAILURES, launches(STORY)):
        go(page, server, address)
    assert [url for url in asked if not url.startswith(server.url)] == []
    assert asked
