// Who waits: jobs with when they are expected to start, reservations that begin next, transfers on the link.

import { clock, distance, image, make, many, size, state, storyLink, table } from "./words.js";

const MOST = 200;

export function showQueue(model) {
  let jobs = null, next = null, transfers = null;

  function draw() {
    const { now, schedule } = model;
    if (jobs === null || !schedule) return;
    const waiting = model.jobs.filter((each) => each.state !== "running");
    const running = model.jobs.filter((each) => each.state === "running");
    const at = (value) => (value === null ? "not known" : `${clock(value, now)} (${distance(value, now)})`);
    jobs.replaceChildren(table(`jobs with an image: ${waiting.length} that wait, ${running.length} that run`, [
      ["job", (each) => storyLink(each.job)], ["user", (each) => each.user], ["state", (each) => state(each.state)],
      ["nodes", (each) => String(each.nodes_wanted), "number"], ["image", (each) => image(each.image)],
      ["image ready", (each) => at(each.ready_s)], ["expected start", (each) => at(each.start_s)],
      ["", (each) => each.words]], [...waiting, ...running].slice(0, MOST)));
    const { total, shown } = schedule.listed(now, 1e15, "", 1e9);
    const items = schedule.items, coming = shown.filter((each) => items.starts_s[each] >= now);
    next.replaceChildren(table(`${coming.length} of ${many(total, "reservation")} to begin`, [
      ["reservation", (each) => storyLink(items.names[each])], ["user", (each) => items.users[each]],
      ["state", (each) => state(items.states[each])], ["begins", (each) => at(items.starts_s[each])],
      ["nodes", (each) => String(schedule.nodeCount(each)), "number"],
      ["image ready", (each) => at(items.ready_s[each])]], coming.slice(0, MOST)));
    transfers.replaceChildren(table(many(model.transfers.length, "transfer"), [
      ["transfer", (each) => String(each.number)], ["state", (each) => state(each.is_late ? "endangered" : each.state)],
      ["image", (each) => image(each.image)], ["to", (each) => (each.nodes.length > 60 ? `${each.nodes.slice(0, 57)}...` : each.nodes)],
      ["arrived", (each) => `${size(each.arrived_bytes)} of ${size(each.total_bytes)}`],
      ["ready", (each) => at(each.ready_s)], ["deadline", (each) => clock(each.deadline_s, now)]], model.transfers.slice(0, MOST)));
  }

  return {
    show(content) {
      jobs = make("div");
      next = make("div");
      transfers = make("div");
      content.append(make("h2", { text: "Queue" }), make("h3", { text: "Jobs" }), jobs,
        make("h3", { text: "Reservations that begin next" }), next, make("h3", { text: "Link" }), transfers);
      draw();
    },
    update: draw,
    hide() { jobs = null; },
  };
}
