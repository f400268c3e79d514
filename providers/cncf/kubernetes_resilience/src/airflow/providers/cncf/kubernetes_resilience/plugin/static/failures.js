// Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
// SPDX-License-Identifier: Apache-2.0
//
// The failures of a period in numbers. Each number is a button that leads to its rows.
// The address of the page has all choices.

import {
  airflowLink, ask, badge, clock, day, failure, make, many, moment, nothing, shortTime, taskInstancePath,
} from "./common.js";

const PERIODS = [["1", "24 hours"], ["7", "7 days"], ["30", "30 days"], ["90", "90 days"]];
const ROWS = 25;
const FILTERS = ["dag_id", "cause", "node", "phase", "outcome", "relaunched", "ran_out", "after", "before", "other"];
const OUTCOMES = {
  "healed": ["success", "healed"],
  "under-way": ["running", "relaunched, goes on"],
  "failed-again": ["up_for_retry", "relaunched, lost again"],
  "failed-by-itself": ["failed", "relaunched, failed by itself"],
  "charged": ["failed", "at the task's cost"],
  "not-known": ["none", "relaunched, then cleared"],
};

const OTHERS = {
  APPLICATION: ["failed by themselves", "Their own code raised an exception, or no pod could be made for them"],
  TIMEOUT: ["time limits", "They took too long, or nothing was heard of them for too long"],
  USER_ACTION: ["user actions", "Somebody has marked or cleared them"],
  INFRASTRUCTURE: ["other infrastructure", "A quota was used up, or Airflow could not be reached, for example"],
};

const FILTER_WORDS = {
  relaunched: (value) => (value === "true" ? "launched again" : "at the task's cost"),
  ran_out: () => "a budget ran out",
  after: (value) => `from ${shortTime(value)}`,
  before: (value) => `to ${shortTime(value)}`,
  phase: (value) => (value === "launch" ? "before the task began" : "while the task ran"),
  outcome: (value) => OUTCOMES[value]?.[1],
  other: (value) => OTHERS[value]?.[0],
};

const page = document.getElementById("page");
const address = new URLSearchParams(location.search);
const days = () => (PERIODS.some(([value]) => value === address.get("days")) ? address.get("days") : "7");
const chosen = () => Object.fromEntries(FILTERS.filter((name) => address.has(name)).map((name) => [name, address.get(name)]));

let period = null; // the period of the numbers, and so of the rows
let asked = null; // the request under way; a newer one aborts it

async function refresh() {
  asked?.abort();
  asked = new AbortController();
  page.setAttribute("aria-busy", "true");
  const until = new Date();
  period = { since: new Date(until - Number(days()) * 86_400_000).toISOString(), until: until.toISOString() };
  try {
    const summary = await ask("failures/summary", { ...period, dag_id: address.get("dag_id") }, asked.signal);
    show(summary);
    if (summary.failures || address.has("other")) await showRows();
  } catch (error) {
    if (error.name === "AbortError") return;
    page.replaceChildren(head(), failure(error, refresh));
  }
  page.setAttribute("aria-busy", "false");
}

function choose(changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) address.delete(name);
    else address.set(name, value);
  }
  history.replaceState(null, "", `?${address}`);
}

/** Show the rows that a number counts. The Dag of the numbers stays chosen. */
function leadTo(filter) {
  for (const name of FILTERS) if (name !== "dag_id") address.delete(name);
  choose(filter);
  showRows().then(() => {
    const rows = document.getElementById("rows");
    rows.scrollIntoView({ behavior: "smooth", block: "start" });
    rows.querySelector("h2").focus({ preventScroll: true });
  });
}

function head() {
  const option = ([value, words]) =>
    make("button", {
      type: "button", class: "button", "aria-pressed": String(value === days()),
      onclick: () => { choose({ days: value, after: null, before: null }); refresh(); },
    }, words);
  return make("header", { class: "head" },
    make("h1", {}, "Infrastructure failures"), make("span", { class: "grow" }),
    make("div", { class: "group", role: "group", "aria-label": "Time" }, PERIODS.map(option)),
    make("button", { type: "button", class: "button", onclick: refresh }, "Refresh"));
}

function show(summary) {
  const about = address.get("dag_id");
  const scope = about && make("p", { class: "scope" }, "Only Dag ", make("b", {}, about), " ",
    make("button", { type: "button", class: "button small", onclick: () => { choose({ dag_id: null }); refresh(); } }, "Show all"));
  const away = summary.outages.map((outage) => make("p", { class: "hint away", role: "status", title: outage.message },
    make("b", {}, outage.dependency), ` is away since ${shortTime(outage.since)}: ${many(outage.held, "launch", "launches")} held until it is back, at no cost.`));
  const hints = [
    summary.is_cut && `There are more failures than one page is made of: the numbers are about the newest ones, since ${shortTime(summary.since)}.`,
    summary.unreadable && `${many(summary.unreadable, "row")} of another version left out.`,
  ].filter(Boolean).map((text) => make("p", { class: "hint" }, text));
  const about_pods = summary.failures ? [
    tiles(summary), chart(summary),
    make("div", { class: "lists" },
      list("Causes", summary.causes, "cause"), list("Nodes that lose pods", summary.nodes, "node"), list("Dags", summary.dags, "dag_id")),
  ] : [nothing("No worker pod was lost in this time",
    "When a worker pod is lost before or while its task runs, it is counted here: why, on which node, and whether the task was launched again.")];
  page.replaceChildren(
    head(), ...[scope].filter(Boolean), ...away, ...hints, ...about_pods, ...(otherCount(summary) ? [others(summary)] : []),
    make("section", { id: "rows", class: "panel", hidden: true }));
}

const otherCount = (summary) => Object.values(summary.others).reduce((sum, number) => sum + number, 0);

/** Show failures without a lost pod, which no other number counts. */
function others(summary) {
  const buttons = Object.entries(OTHERS).filter(([category]) => summary.others[category]).map(([category, [words, hint]]) =>
    make("button", { type: "button", class: "button", title: hint, onclick: () => leadTo({ other: category }) },
      make("b", {}, summary.others[category].toLocaleString()), ` ${words}`));
  return make("section", { class: "panel others", "aria-labelledby": "others" },
    make("h2", { id: "others" }, "Not counted above"),
    make("span", { class: "muted" }, `tasks that failed without losing a pod${summary.others_cut ? ", the newest ones" : ""}`),
    make("span", { class: "grow" }), buttons);
}

function tiles(summary) {
  const healed = summary.outcomes["healed"];
  const ended = healed + summary.outcomes["failed-again"] + summary.outcomes["failed-by-itself"];
  const tile = (number, words, filter, style = "", hint = "") =>
    make("button", { type: "button", class: `tile ${style}`, onclick: () => leadTo(filter) },
      make("span", { class: "number" }, number.toLocaleString()), make("span", {}, words),
      make("span", { class: "muted" }, hint));
  return make("div", { class: "tiles" },
    tile(summary.failures, "pods lost", {}, "",
      `${summary.launches.toLocaleString()} before the task began, ${summary.executions.toLocaleString()} while it ran`),
    tile(summary.relaunched, "launched again", { relaunched: "true" }, "good", "at no cost for the task"),
    tile(healed, "healed", { outcome: "healed" }, "good",
      ended ? `${Math.round((100 * healed) / ended)}% of the relaunches that have ended` : "none has ended yet"),
    tile(summary.outcomes["failed-again"], "lost again", { outcome: "failed-again" }, "", "the relaunch lost its pod too"),
    tile(summary.outcomes["charged"], "at the task's cost", { relaunched: "false" }, "bad", "a retry, or the task failed"),
    tile(summary.ran_out, "budgets ran out", { ran_out: "true" }, "bad", "a rule would have launched again"));
}

function chart(summary) {
  const most = Math.max(...summary.buckets.map((bucket) => bucket.relaunched + bucket.charged));
  const top = niceTop(most);
  const isShort = new Date(summary.buckets[0].ends) - new Date(summary.buckets[0].begins) < 86_400_000;
  const words = (bucket) => {
    const from = isShort ? shortTime(bucket.begins) : day(bucket.begins);
    return `${from}: ${many(bucket.relaunched + bucket.charged, "pod")} lost, ${bucket.relaunched} launched again, ${bucket.charged} at the task's cost`;
  };
  const first = summary.buckets.findIndex((bucket) => bucket.relaunched + bucket.charged);
  const bars = summary.buckets.map((bucket, index) =>
    make("button", {
      type: "button", class: "bar", title: words(bucket), "aria-label": words(bucket), tabindex: index === first ? "0" : "-1",
      onclick: () => leadTo({ after: bucket.begins, before: bucket.ends }), onkeydown: (event) => moveTo(event, bars, index),
    },
    make("span", { class: "part charged", style: { height: `${(100 * bucket.charged) / top}%` } }),
    make("span", { class: "part relaunched", style: { height: `${(100 * bucket.relaunched) / top}%` } })));
  const labels = ticks(summary.buckets);
  return make("section", { class: "panel", "aria-labelledby": "over-time" },
    make("div", { class: "panel-head" },
      make("h2", { id: "over-time" }, "Over time"), make("span", { class: "grow" }),
      make("span", { class: "legend relaunched" }, "launched again"), make("span", { class: "legend charged" }, "at the task's cost")),
    make("div", { class: "chart" },
      make("div", { class: "axis", "aria-hidden": "true" }, make("span", {}, top.toLocaleString()), make("span", {}, (top / 2).toLocaleString()), make("span", {}, "0")),
      make("div", { class: "plot" },
        make("div", { class: "bars", role: "group", "aria-label": "Pods lost over time; arrow keys move between the bars" }, bars),
        make("div", { class: "ticks", "aria-hidden": "true" },
          labels.map((label) => make("span", {}, label))))));
}

/** Return the labels below the bars: some of the days, where they begin, or the hours of a single day. */
function ticks(buckets) {
  const name = days() === "1" ? clock : day;
  const names = buckets.map((bucket) => name(bucket.begins));
  const begins = names.map((text, index) => index > 0 && text !== names[index - 1]);
  const every = Math.ceil(begins.filter(Boolean).length / 8);
  let seen = 0;
  return names.map((text, index) => (begins[index] && seen++ % every === 0 ? text : ""));
}

/** Return the end of the axis: a round and even number, not below any bar. */
function niceTop(most) {
  const power = 10 ** Math.floor(Math.log10(Math.max(most, 1)));
  return Math.max(2, [1, 2, 4, 6, 8, 10].map((step) => step * power).find((value) => value >= most));
}

function moveTo(event, bars, index) {
  const next = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: bars.length - 1 }[event.key];
  if (next === undefined || !bars[next]) return;
  event.preventDefault();
  bars[index].tabIndex = -1;
  bars[next].tabIndex = 0;
  bars[next].focus();
}

function list(title, counts, field) {
  const shown = 10;
  const most = counts[0]?.failures ?? 1;
  const item = (count) =>
    make("li", {}, make("button", {
      type: "button", class: "entry", title: count.in_words,
      "aria-label": `${count.name}: ${many(count.failures, "pod")} lost, ${count.charged} at the task's cost`,
      onclick: () => {
        if (field !== "dag_id") leadTo({ [field]: count.name });
        else { choose({ dag_id: count.name }); refresh(); }
      },
    },
    make("span", { class: "name" }, count.name), make("span", { class: "count" }, count.failures.toLocaleString()),
    make("span", { class: "track", style: { width: `${(100 * count.failures) / most}%` } },
      make("span", { class: "part relaunched", style: { "flex-grow": count.relaunched } }),
      make("span", { class: "part charged", style: { "flex-grow": count.charged } })),
    count.in_words && make("span", { class: "words muted" }, count.in_words),
    count.suspected && make("span", { class: "words muted" }, `suspect, last at ${shortTime(count.suspected)}: launches preferred other nodes`)));
  const rest = counts.slice(shown);
  const entries = make("ol", {}, counts.slice(0, shown).map(item));
  const more = rest.length && make("button", {
    type: "button", class: "button small", onclick: (event) => { entries.append(...rest.map(item)); event.target.remove(); },
  }, `${rest.length} more`);
  return make("section", { class: "panel list" }, make("h2", {}, title), entries, more || null);
}

async function showRows(offset = 0) {
  const section = document.getElementById("rows");
  if (!section) return;
  try {
    const { other, ...filter } = chosen();
    const found = other
      ? await ask("task-failures", { ...period, dag_id: filter.dag_id, category: other, limit: ROWS, offset }, asked.signal)
      : await ask("failures", { ...period, ...filter, limit: ROWS, offset }, asked.signal);
    const body = offset ? section.querySelector("tbody") : make("tbody", {});
    body.append(...found.rows.map(other ? otherRow : row));
    if (!offset) section.replaceChildren(...frame(found, body));
    section.hidden = false;
    const left = found.total - offset - found.rows.length;
    const foot = section.querySelector(".foot");
    foot.replaceChildren(left > 0 ? make("button", { type: "button", class: "button", onclick: () => showRows(offset + ROWS) },
      `Show ${Math.min(ROWS, left)} more of ${left.toLocaleString()}`) : "");
  } catch (error) {
    if (error.name === "AbortError") return;
    section.hidden = false;
    section.replaceChildren(failure(error, () => showRows()));
  }
}

function frame(found, body) {
  const isOther = address.has("other");
  const columns = isOther ? ["When", "Task", "Why", "What was said"]
    : ["When", "Task", "Node", "Cause", "What became of it", "Decision"];
  const label = isOther ? "Tasks that failed without losing a pod" : "Pods that were lost";
  return [
    make("div", { class: "panel-head" },
      make("h2", { tabindex: "-1" }, many(found.total, isOther ? "task" : "pod")), chips()),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
      make("table", {}, make("thead", {}, make("tr", {}, columns.map((name) => make("th", { scope: "col" }, name)))), body)),
    make("div", { class: "foot" }),
  ];
}

function chips() {
  const filters = Object.entries(chosen()).filter(([name]) => name !== "dag_id");
  if (!filters.length) return make("span", { class: "muted" }, "all that were lost in this time");
  return [
    ...filters.map(([name, value]) => make("span", { class: "chip" }, FILTER_WORDS[name]?.(value) ?? `${name} ${value}`)),
    make("button", { type: "button", class: "button small", onclick: () => leadTo({}) }, "Show all"),
  ];
}

function row(item) {
  const lost = item.failure;
  const [state, words] = OUTCOMES[item.outcome] ?? ["none", item.outcome];
  return make("tr", {},
    make("td", { class: "nowrap" }, moment(item.at)),
    make("td", {}, taskLink(item),
      make("div", { class: "muted small" }, `try ${item.try_number}, launch ${lost.launch}, ${lost.pod}`)),
    make("td", { class: "nowrap" }, lost.node ?? "unknown"),
    make("td", { title: lost.cause_in_words }, lost.cause, make("div", { class: "muted small" }, `${lost.category} / ${lost.reason}`)),
    make("td", {}, badge(state, words)),
    make("td", { class: "explanation" }, lost.decision.explanation));
}

function otherRow(item) {
  const { end } = item;
  return make("tr", {},
    make("td", { class: "nowrap" }, moment(end.at)),
    make("td", {}, taskLink(item), make("div", { class: "muted small" }, `try ${item.try_number}`)),
    make("td", {}, end.in_words, make("div", { class: "muted small" }, `${end.category} / ${end.reason}, noticed by ${end.source}`)),
    make("td", { class: "explanation" }, [end.exception, end.message].filter(Boolean).join(": ")));
}

const taskLink = (item) =>
  airflowLink(`${taskInstancePath(item)}/plugin/launches`, { class: "link" }, `${item.dag_id} · ${item.task_id}${item.map_index >= 0 ? ` [${item.map_index}]` : ""}`);

refresh();
