// Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
// SPDX-License-Identifier: Apache-2.0
//
// Functions of both pages. Texts of pods and people go into the page as text, never as HTML.

const ROOT = new URL("..", import.meta.url);
const AIRFLOW = new URL("..", ROOT);

/** An answer of the API without data. */
export class Refusal extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Make an element. Children are elements or texts; null and false are skipped. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, of_] of Object.entries(value)) element.style.setProperty(key, of_);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Request data of the API for the logged-in user. Throws Refusal, with status 0 without an answer. */
export async function ask(path, parameters = {}, signal = undefined) {
  const url = new URL(`api/v1/${path}`, ROOT);
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  const options = { credentials: "same-origin", headers: { Accept: "application/json" }, signal };
  const answer = await fetch(url, options).catch((error) => {
    throw error.name === "AbortError" ? error : new Refusal(0, "");
  });
  if (answer.ok) return answer.json();
  const detail = await answer.json().then((body) => body.detail, () => null);
  throw new Refusal(answer.status, typeof detail === "string" ? detail : answer.statusText);
}

const REFUSALS = {
  0: ["The API server does not answer", "The connection may be interrupted."],
  401: ["You are not logged in any more", "Log in to Airflow again, and reload the page."],
  403: ["You may not read this", "It takes the permission to read the audit log of the Dag."],
  404: ["There is no such task instance", "It may have been deleted, or its Dag run has no such task."],
  422: ["The address of this page makes no sense", ""],
};

/** Show an error, and offer to try again. */
export function failure(error, again) {
  if (!(error instanceof Refusal)) throw error; // a mistake in these files, which the browser's console shows
  const [title, hint] = REFUSALS[error.status]
    ?? ["The API server could not answer", `It says ${error.status} ${error.message}; its log says why.`];
  return make("div", { class: "notice error", role: "alert" },
    make("h2", {}, title), make("p", {}, hint || error.message),
    make("button", { type: "button", class: "button", onclick: again }, "Try again"));
}

/** Show that there is nothing, and what that means. */
export function nothing(title, ...words) {
  return make("div", { class: "notice" }, make("h2", {}, title), make("p", {}, ...words));
}

/** Return the time zone that is chosen in Airflow's own pages; undefined for the browser's. */
function timeZone() {
  try {
    const chosen = String(localStorage.getItem("timezone") ?? "").replaceAll('"', "");
    new Intl.DateTimeFormat(undefined, { timeZone: chosen });
    return chosen || undefined;
  } catch {
    return undefined;
  }
}

const ZONE = timeZone();
const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", timeZone: ZONE });
const SHORT = new Intl.DateTimeFormat(undefined, {
  month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", timeZone: ZONE,
});
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", timeZone: ZONE });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", timeZone: ZONE });

export const shortTime = (text) => SHORT.format(new Date(text));
export const day = (text) => DAY.format(new Date(text));
export const clock = (text) => CLOCK.format(new Date(text));

/** Show a moment, with the exact one as a tooltip. */
export function moment(text) {
  return text ? make("time", { datetime: text, title: text }, FULL.format(new Date(text))) : "not known";
}

/** Return the time between two moments in words. */
export function duration(from, to) {
  const seconds = Math.max(0, Math.round((new Date(to) - new Date(from)) / 1000));
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60)];
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
}

/** Return a number with its noun: "1 pod", "2 pods". */
export const many = (number, word, words = `${word}s`) => `${number.toLocaleString()} ${number === 1 ? word : words}`;

/** Make a link to a page of Airflow, which replaces the page around this frame. */
export function airflowLink(path, properties, ...children) {
  const href = new URL(path, AIRFLOW).href;
  const follow = (event) => {
    if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || window.top === window) return;
    try {
      // A sandboxed frame may not navigate the page around it, but that page can navigate itself.
      const link = window.top.document.createElement("a");
      link.href = href;
      event.preventDefault();
      link.click();
    } catch {
      // Airflow is in a frame of another site: the link opens here.
    }
  };
  return make("a", { href, onclick: follow, ...properties }, ...children);
}

/** Return the path of a task instance in Airflow's pages. */
export function taskInstancePath({ dag_id, run_id, task_id, map_index }) {
  const parts = ["dags", dag_id, "runs", run_id, "tasks", task_id];
  if (map_index >= 0) parts.push("mapped", map_index);
  return parts.map(encodeURIComponent).join("/");
}

/** Make a badge with a state of Airflow, in its colour. */
export function badge(state, words = null) {
  return make("span", { class: `badge state-${state ?? "none"}` }, words ?? (state ?? "no status").replaceAll("_", " "));
}

/** Our colours and fonts, with their names in Airflow's own pages. */
const THEIRS = {
  "--page": "--chakra-colors-bg",
  "--border": "--chakra-colors-border",
  "--text": "--chakra-colors-fg",
  "--muted": "--chakra-colors-fg-muted",
  "--font": "--chakra-fonts-body",
};
for (const state of [
  "success", "running", "restarting", "failed", "upstream_failed", "up_for_retry", "up_for_reschedule", "deferred",
  "awaiting_input", "queued", "scheduled", "skipped",
]) THEIRS[`--state-${state}`] = `--chakra-colors-${state}-solid`;

/** Follow the dark or light theme of the page around this one. */
function followTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let around = null;
  try {
    if (window.parent !== window) around = window.parent.document.documentElement;
  } catch {
    // In a frame of another site, the browser's preference decides.
  }
  const apply = () => {
    const chosen = around && ["dark", "light"].find((theme) => around.classList.contains(theme));
    const root = document.documentElement;
    root.dataset.theme = chosen || (dark.matches ? "dark" : "light");
    for (const [ours, theirs] of Object.entries(THEIRS)) {
      const value = around && getComputedStyle(around).getPropertyValue(theirs).trim();
      if (value) root.style.setProperty(ours, value);
      else root.style.removeProperty(ours);
    }
  };
  dark.addEventListener("change", apply);
  if (around) new MutationObserver(apply).observe(around, { attributes: true, attributeFilter: ["class"] });
  apply();
}

followTheme();
