// The page put together: which view is shown, what it knows of the site, and how it keeps that up to date.

import * as api from "./api.js";
import { showNodes } from "./nodes.js";
import { showPlan } from "./plan.js";
import { showQueue } from "./queue.js";
import { Schedule } from "./schedule.js";
import { showStory } from "./story.js";
import { Timeline } from "./timeline.js";
import { clock, distance, many, rate } from "./words.js";

const EVERY_MS = 5000, SLOWEST_MS = 60000, MOST = 1000;

const model = { schedule: null, status: null, now: Date.now() / 1000, overview: null, transfers: [], jobs: [] };
const timeline = new Timeline(model, (name) => { location.hash = `#story/${encodeURIComponent(name)}`; });
const content = document.getElementById("content"), told = document.getElementById("status");
let view = null, pause = EVERY_MS, timer = 0, isAsking = false, seen = "";

/** A view: `show` fills a place, `update` is called when something may have changed, `hide` at its end. */
const views = {
  timeline: () => timeline,
  nodes: () => showNodes(model),
  queue: () => showQueue(model),
  plan: () => showPlan(model, false),
  class: () => showPlan(model, true),
  story: (name) => showStory(model, name),
};

function route() {
  const [, name = "timeline", argument = ""] = /^#([a-z]+)(?:\/(.*))?$/.exec(location.hash) || [];
  if (name === "content") return;
  if (view) view.hide();
  content.replaceChildren();
  view = (views[name] || views.timeline)(decodeURIComponent(argument));
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.hash === `#${views[name] ? name : "timeline"}`;
    if (isHere) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  view.show(content);
  const title = content.querySelector("h2");
  document.title = title ? `${title.textContent} \u2013 Outrider` : "Outrider";
}

function tell(words, isTrouble) {
  const text = words.join(" \u00b7 ");
  if (told.textContent === text) return;
  told.textContent = text;
  told.classList.toggle("trouble", isTrouble);
}

function describe() {
  const { status, now } = model;
  if (!status) return;
  document.getElementById("site").textContent = status.site;
  const count = Object.values(status.reservations).reduce((sum, each) => sum + each, 0);
  const words = [status.is_promising ? "promises" : `promises nothing: ${status.troubles.join("; ")}`,
    `${status.nodes_up} of ${status.nodes} nodes up`, many(count, "reservation")];
  if (status.reservations.endangered) words.push(`${status.reservations.endangered} endangered`);
  if (status.next_start_s !== null) words.push(`next start ${clock(status.next_start_s, now)}`);
  words.push(`transfers: ${status.transfers_running} run, ${status.transfers_waiting} wait; link ${rate(status.link_rate_bytes_per_s)}`);
  if (status.link_words) words.push(status.link_words);
  tell(words, !status.is_promising);
}

/** What has changed since. The overview comes first: what everybody waits for is shown before the rest is asked for. */
async function look() {
  const [changed, status] = await Promise.all([api.overview(), api.get("v1/status")]);
  model.status = status;
  model.now = status.now_s;
  if (changed !== null) model.overview = changed;
  describe();
  if (model.schedule === null) arrange();
  const [transfers, jobs] = await Promise.all([api.get("v1/transfers", { most: MOST }), api.get("v1/jobs", { most: MOST })]);
  const own = JSON.stringify([transfers.transfers, jobs.jobs]);
  model.transfers = transfers.transfers;
  model.jobs = jobs.jobs;
  if (changed !== null || own !== seen) arrange();
  else if (view && view.update) view.update();
  seen = own;
}

/** What is known as a schedule, for the view to show. */
function arrange() {
  model.schedule = new Schedule(model.overview, model.now, model.transfers, model.jobs);
  if (view && view.update) view.update();
}

async function again() {
  clearTimeout(timer);
  if (isAsking) return;
  isAsking = true;
  try {
    if (!document.hidden) await look();
    pause = EVERY_MS;
  } catch (error) {
    pause = Math.min(SLOWEST_MS, 2 * pause);
    tell([`not up to date: ${error.message}`, `asked again ${distance(model.now + pause / 1000, model.now)}`], true);
  }
  isAsking = false;
  timer = setTimeout(again, pause);
}

function kept(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(name, value);
    return localStorage.getItem(name);
  } catch { return null; }
}

function theme(chosen) {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.dataset.theme = chosen || system;
  const button = document.getElementById("theme");
  button.textContent = { dark: "Theme: dark", light: "Theme: light" }[chosen] || "Theme: system";
  if (view === timeline) timeline.update();
}

const NEXT = { "": "dark", dark: "light", light: "" };
document.getElementById("theme").addEventListener("click", () => {
  const chosen = NEXT[kept("outrider-theme") || ""];
  kept("outrider-theme", chosen);
  theme(chosen);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme(kept("outrider-theme") || ""));
addEventListener("hashchange", () => {
  if (location.hash === "#content") return;
  route();
  content.focus({ preventScroll: true });
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) again(); });

theme(kept("outrider-theme") || "");
route();
again();
