// One reservation's story, as `outrider show` and `outrider explain` tell it; or a job's.

import { get, newKey, Refusal, send } from "./api.js";
import { clock, distance, facts, image, make, many, money, nodesInWords, period, size, slack, span, state, table } from "./words.js";

export function showStory(model, name) {
  let place = null, stop = null;
  const isJob = /^[0-9]/.test(name);

  async function load() {
    if (stop) stop.abort();
    stop = new AbortController();
    const path = `v1/${isJob ? "jobs" : "reservations"}/${encodeURIComponent(name)}`;
    try {
      const details = await get(path, {}, stop.signal);
      const why = isJob ? null : await explanation(path, stop.signal);
      if (place) place.replaceChildren(...(isJob ? job(details) : reservation(details, why)));
    } catch (error) {
      if (place && error.name !== "AbortError") place.replaceChildren(make("p", { class: "trouble", role: "alert", text: error.message }));
    }
  }

  /** Why it is so; its owner and administrators are told, and others that it is not theirs. */
  async function explanation(path, signal) {
    try {
      return await get(`${path}/explanation`, {}, signal);
    } catch (error) {
      if (error instanceof Refusal && error.status === 403) return null;
      throw error;
    }
  }

  function reservation(details, why) {
    const view = details.reservation, now = model.now, isOver = details.ended_s !== null;
    const around = now < view.start_s ? `, begins ${distance(view.start_s, now)}` : now < view.end_s ? `, ends ${distance(view.end_s, now)}` : "";
    const ready = isOver || view.ready_s === null ? "" : `${view.ready_s <= now ? "since" : "about"} ${clock(view.ready_s, now)}, ${slack(view.start_s - view.ready_s)}`;
    const parts = [
      make("p", {}, state(view.state), view.why ? `: ${view.why}` : ""),
      facts([["user", `${view.user}${view.account ? `, account ${view.account}` : ""}`],
        ["nodes", nodesInWords(view.node_count, view.nodes)],
        ["time", `${period(view.start_s, view.end_s, now)}${isOver ? "" : around}`],
        ["event", view.window ? windowWords(view.window, now) : ""],
        ["image", image(view.image)], ["address", view.image.uri || ""], ["digest", view.image.digest || ""],
        ["ready", ready],
        ["odds", view.state === "endangered" && details.odds_percent !== null ? `${details.odds_percent} % that it is still met` : ""],
        ["accepted", clock(details.accepted_s, now)], ["over", isOver ? clock(details.ended_s, now) : ""],
        ["batch", view.is_confirmed || isOver ? "" : "the batch system does not have it yet"],
        ["price", isOver || details.price === null ? "" : money(details.price)],
        ["receipt", details.receipt ? receiptWords(details.receipt, now) : ""]])];
    if (details.staging.length && !isOver) parts.push(make("h3", { text: "On its nodes" }), staging(details.staging, now));
    if (details.transfers.length && !isOver) {
      parts.push(make("h3", { text: "Transfers" }), table(many(details.transfers.length, "transfer"), [
        ["transfer", (each) => String(each.number)], ["size", (each) => size(each.size_bytes)], ["to", (each) => each.nodes],
        ["takes about", (each) => span(each.duration_s)], ["begins", (each) => clock(each.begin_s, now)],
        ["at the latest", (each) => clock(each.latest_begin_s, now)], ["deadline", (each) => clock(each.deadline_s, now)]], details.transfers.slice(0, 100)));
    }
    if (why) {
      parts.push(make("h3", { text: "Why" }), make("ul", {}, why.sentences.map((text) => make("li", { text }))), decisions(why.decisions));
      if (!isOver) parts.push(cancelling(view.name));
    }
    return parts;
  }

  function cancelling(full) {
    let isSure = false;
    const key = newKey(), words = make("p", { role: "alert" });
    const button = make("button", { type: "button", text: "Give it up", onclick: async () => {
      if (!isSure) { isSure = true; button.textContent = `Give ${full} up, for good`; return; }
      button.disabled = true;
      try { await send("DELETE", `v1/reservations/${encodeURIComponent(full)}`, null, { key }); await load(); }
      catch (error) { words.textContent = error.message; button.disabled = false; }
    } });
    return make("div", {}, button, words);
  }

  function job(details) {
    const view = details.job, now = model.now;
    return [make("p", {}, state(view.state), view.words ? `: ${view.words}` : ""),
      facts([["user", view.user], ["nodes", view.node_count ? nodesInWords(view.node_count, view.nodes) : `${view.nodes_wanted} wanted`],
        ["image", image(view.image)], ["submitted", clock(view.submitted_s, now)],
        ["ready", view.ready_s === null ? "" : clock(view.ready_s, now)],
        ["expected start", view.start_s === null ? "" : `${clock(view.start_s, now)} (${distance(view.start_s, now)})`]]),
      ...(details.staging.length ? [make("h3", { text: "On its nodes" }), staging(details.staging, now)] : []),
      ...(details.decisions.length ? [make("h3", { text: "What was decided" }), decisions(details.decisions)] : [])];
  }

  function staging(rows, now) {
    const order = ["failed", "unknown", "arriving", "waiting", "ready"];
    const sorted = [...rows].sort((one, other) => order.indexOf(one.state) - order.indexOf(other.state)).slice(0, 200);
    return table(`${many(rows.length, "node")}, ${rows.filter((each) => each.state === "ready").length} have the image`, [
      ["node", (each) => each.node], ["state", (each) => state(each.state)],
      ["arrived", (each) => make("span", {}, make("meter", { min: 0, max: each.size_bytes || 1, value: each.arrived_bytes, "aria-label": `arrived on ${each.node}` }),
        ` ${size(each.arrived_bytes)} of ${size(each.size_bytes)}`)],
      ["rate", (each) => (each.rate_bytes_per_s ? `${size(each.rate_bytes_per_s)}/s` : "")],
      ["ready", (each) => clock(each.ready_s, now)], ["from", (each) => each.source], ["", (each) => each.words]], sorted);
  }

  function decisions(lines) {
    return make("ol", { class: "story" }, lines.map((each) => make("li", {},
      make("time", { datetime: new Date(each.at_s * 1000).toISOString(), text: clock(each.at_s, model.now) }),
      ` ${each.outcome}${each.reason ? `: ${each.reason}` : ""}`)));
  }

  return {
    show(content) {
      place = make("div");
      content.append(make("h2", { text: `${isJob ? "Job " : ""}${name}` }), place);
      load();
    },
    update: load,
    hide() { if (stop) stop.abort(); place = null; },
  };
}

function windowWords(window, now) {
  if (window.triggered_s !== null) return `${clock(window.triggered_s, now)}: ${window.event}`;
  return `until ${clock(window.until_s, now)}: it starts within ${span(window.within_s)}, for ${span(window.duration_s)}`;
}

function receiptWords(receipt, now) {
  const words = [receipt.spare_s === null ? (receipt.is_met ? "met" : "not met: the image was never on all nodes")
    : `${receipt.is_met ? "met" : "not met"}: ready ${slack(receipt.spare_s)}`,
  `${size(receipt.transferred_bytes)} moved, ${size(receipt.saved_bytes)} saved`];
  if (receipt.price !== null && receipt.charged !== null) words.push(`charged ${money(receipt.charged)} of ${money(receipt.price)}`);
  if (receipt.words) words.push(receipt.words);
  return words.join("\n");
}
