// Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
// SPDX-License-Identifier: Apache-2.0
//
// The launches of the task instance in the address of the page.

import {
  airflowLink, ask, badge, duration, failure, make, many, moment, nothing, taskInstancePath,
} from "./common.js";

const REFRESH = 5000; // milliseconds
const page = document.getElementById("page");
const place = readPlace();

/** Parse .../dags/DAG/runs/RUN/tasks/TASK/INDEX/launches. */
function readPlace() {
  const parts = location.pathname.split("/").slice(-8).map(decodeURIComponent);
  const index = Number.parseInt(parts[6], 10);
  // Airflow does not replace its placeholder for a task that is not mapped.
  return { dag_id: parts[1], run_id: parts[3], task_id: parts[5], map_index: Number.isNaN(index) ? -1 : index };
}

let shown = null; // the shown answer, as text
let timer = 0; // until the next request

async function refresh() {
  let isLive = true;
  try {
    const { dag_id, run_id, task_id, map_index } = place;
    const parts = ["dags", dag_id, "dagRuns", run_id, "taskInstances", task_id, map_index, "launches"];
    const view = await ask(parts.map(encodeURIComponent).join("/"));
    isLive = view.is_live;
    const text = JSON.stringify(view);
    // An unchanged page is not replaced: a user may be reading it, or have opened a part.
    if (text !== shown) show(view);
    shown = text;
  } catch (error) {
    // Without an answer, the last one stays, and the request is repeated.
    isLive = error.status === 0;
    if (shown === null || !isLive) page.replaceChildren(failure(error, start));
  }
  page.setAttribute("aria-busy", "false");
  if (isLive) timer = setTimeout(whenVisible, REFRESH);
}

function whenVisible() {
  if (!document.hidden) refresh();
  else document.addEventListener("visibilitychange", whenVisible, { once: true });
}

function start() {
  clearTimeout(timer);
  shown = null;
  refresh();
}

function show(view) {
  const opened = new Set([...page.querySelectorAll("details[open]")].map((item) => item.id));
  page.replaceChildren(
    make("header", { class: "head" },
      make("h1", {}, "Launches"), badge(view.state),
      view.is_live && make("span", { class: "live", title: "The page follows the task" }, "live")),
    view.is_cut && make("p", { class: "hint" }, "This task instance has very many events: older ones are left out.") || "",
    ...(view.tries.length ? view.tries.map(showTry) : [empty()]),
  );
  for (const item of page.querySelectorAll("details")) item.open = opened.has(item.id);
}

const empty = () =>
  nothing("No launch yet", "The task has not been launched. When it is, each pod that it gets is listed here.");

function showTry(view) {
  const lost = view.launches.filter((launch) => launch.failure).length;
  return make("section", { class: "try", "aria-label": `Try ${view.number}` },
    make("div", { class: "try-head" },
      make("h2", {}, `Try ${view.number}`), badge(view.state),
      make("span", { class: "muted" }, many(view.launches.length, "launch", "launches"), lost ? `, ${many(lost, "pod")} lost` : ""),
      make("span", { class: "grow" }),
      airflowLink(`${taskInstancePath(place)}?try_number=${view.number}`, { class: "link" }, "Log")),
    make("div", { class: "budgets" },
      budget("relaunches", view.relaunches, "After launches that failed before the task began. They cost no retry."),
      budget("infrastructure retries", view.infrastructure, "After the running task had lost its pod. They cost no retry."),
      budget("retries", view.retries, "Of the task's own, before this try.")),
    view.launches.length > 0 && make("ol", { class: "launches" }, view.launches.map((launch) => showLaunch(view, launch))),
    view.ended_by && endedBy(view.ended_by));
}

/** Show the end of a try without a lost pod. */
const endedBy = (end) =>
  make("div", { class: "ended" },
    make("p", {}, make("b", {}, "What ended it: "), end.in_words, " ",
      make("span", { class: "muted" }, `${end.category} / ${end.reason}, noticed by ${end.source}`)),
    (end.exception || end.message) && make("pre", { tabindex: "0" }, [end.exception, end.message].filter(Boolean).join(": ")));

function budget(name, value, title) {
  if (!value) return null;
  const isOut = value.allowed !== null && value.used >= value.allowed && value.allowed > 0;
  return make("span", { class: isOut ? "chip out" : "chip", title },
    `${name} `, make("b", {}, value.allowed === null ? `${value.used}` : `${value.used} of ${value.allowed}`));
}

const ENDS = {
  running: ["running", "running"],
  waiting: ["queued", "waiting"],
};

function showLaunch(view, launch) {
  const lost = launch.failure;
  const isOwn = lost?.category === "APPLICATION";
  const [state, words] = lost ? (isOwn ? ["failed", "failed"] : ["lost", "pod lost"]) : (ENDS[launch.end] ?? [launch.state, null]);
  const hasFailed = ["failed", "up_for_retry"].includes(launch.state);
  return make("li", { class: `launch ${hasFailed ? "failed" : launch.end}` },
    make("div", { class: "launch-head" },
      make("h3", {}, `Launch ${launch.number}`), badge(state, words),
      make("span", { class: "pod" }, launch.host ?? ""),
      lost?.node && make("span", { class: "muted" }, "on node ", make("b", {}, lost.node))),
    make("p", { class: "times muted" }, times(launch)),
    lost && why(lost), lost && decided(lost), lost && said(view, launch, lost), lost && facts(lost));
}

function times(launch) {
  const parts = [];
  if (launch.started_at) parts.push("began ", moment(launch.started_at));
  else if (launch.held_for) parts.push("held since ", moment(launch.held_since), `: ${launch.held_for} is away`);
  else if (launch.end === "waiting") parts.push(launch.due ? ["due ", moment(launch.due)] : "waits for its pod, and for its worker to start");
  else if (launch.failure?.phase === "launch") parts.push("the task had not begun");
  if (launch.ended_at) parts.push(parts.length ? ", " : "", "ended ", moment(launch.ended_at));
  if (launch.started_at && launch.ended_at) parts.push(` (${duration(launch.started_at, launch.ended_at)})`);
  return parts.flat();
}

const why = (lost) =>
  make("p", { class: "why" }, lost.cause_in_words ?? `${lost.platform_reason}.`,
    " ", make("span", { class: "muted" }, `${lost.category} / ${lost.reason}`));

const ACTIONS = {
  relaunch: "Launched again at no cost",
  count: "Counts against the task",
  fail: "Fails the task for good",
};

function decided(lost) {
  const { action, explanation } = lost.decision;
  return make("p", { class: `decision ${action}` }, make("b", {}, `${ACTIONS[action] ?? action}: `), explanation);
}

function said(view, launch, lost) {
  if (!lost.message) return null;
  return make("details", { id: `said-${view.number}-${lost.uid}` },
    make("summary", {}, "Last lines"), make("pre", { tabindex: "0" }, lost.message));
}

function facts(lost) {
  const { policy, rule, delay, avoid_node } = lost.decision;
  const known = [
    ["Reason", lost.platform_reason],
    ["Cause", lost.cause],
    ["Container", lost.container && `${lost.container}${lost.container_type ? ` (${lost.container_type})` : ""}`],
    ["Exit code", lost.exit_code === null ? null : `${lost.exit_code}${lost.signal ? ` (${lost.signal})` : ""}`],
    ["Policy, rule", `${policy}, ${rule}`],
    ["Delay", delay ? `${Math.round(delay)} s` : null],
    ["Avoids the node", avoid_node === "none" ? null : avoid_node],
    ["Namespace", lost.namespace],
    ["Pod UID", lost.uid],
  ];
  return make("dl", { class: "facts" },
    known.filter(([, value]) => value).map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

start();
