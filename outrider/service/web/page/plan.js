// A reservation or a class that is asked for: the service says what it would answer while one types.

import { get, newKey, Refusal, send } from "./api.js";
import { clock, day, distance, facts, image, make, money, nodesInWords, period, size, slack, span, storyLink } from "./words.js";

const QUIET_MS = 400;
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "";

/** Fields: key, label, kind, first value, hint; those of the deployment are sent only if they say something. */
const FIELDS = {
  name: ["Name", "text", "", "letters, digits, dots, hyphens"],
  image: ["Image", "text", "", "a name of the catalogue or an address"],
  nodes: ["Nodes", "number", "1", ""],
  seats: ["Seats", "number", "12", "a node for each, or a part of one"],
  cpus: ["Processors of each", "number", "", "empty: whole nodes"],
  memory: ["Memory of each", "text", "", "8GiB"],
  gpus: ["Graphics processors of each", "number", "", ""],
  start: ["Start", "datetime-local", "", "empty: whenever it fits before the end below"],
  duration: ["Duration", "text", "2h", "90m, 2h30m, 1d"],
  finish_by: ["Finish by", "datetime-local", "", "it may start later then"],
  first: ["First day", "date", "", ""],
  at: ["At", "time", "09:00", ""],
  every: ["How often", "choice", "weekdays", ""],
  until: ["Last day", "date", "", ""],
  account: ["Account", "text", "", ""],
  private: ["The image is private", "check", "", ""],
  best_fit: ["Take the days that can be had, not all or none", "check", "", ""],
};
const OF_ONE = ["name", "image", "nodes", "duration", "start", "finish_by", "cpus", "memory", "gpus", "account", "private"];
const OF_CLASS = ["name", "image", "seats", "first", "at", "duration", "every", "until", "cpus", "memory", "gpus", "account", "best_fit", "private"];
const CHOICES = ["weekdays", "daily", "weekly"];
/** Faults of the service's are about keys; which fields those come from. */
const KEYS = { "metadata.name": "name", "metadata.image.uri": "image", "metadata.image": "image" };

export function showPlan(model, isClass) {
  const fields = {}, hints = {}, names = isClass ? OF_CLASS : OF_ONE;
  let answer = null, button = null, stop = null, timer = 0, key = newKey(), last = "";

  function first(name) {
    if (name === "first") return day(model.now + 86400);
    if (name === "until") return day(model.now + 14 * 86400);
    if (name === "start") return `${day(model.now + 86400)}T09:00`;
    if (name === "name") return isClass ? "class" : "work";
    return FIELDS[name][2];
  }

  function field(name) {
    const [label, kind, , words] = FIELDS[name], id = `field-${name}`;
    const common = { id, name, autocomplete: "off", "aria-describedby": `${id}-hint`, oninput: changed };
    const input = kind === "choice" ? make("select", common, CHOICES.map((each) => make("option", { text: each })))
      : make("input", { ...common, type: kind === "check" ? "checkbox" : kind, min: kind === "number" ? (name === "gpus" ? 0 : 1) : null,
        list: name === "image" ? "images" : null, required: ["name", "image", "nodes", "seats", "duration"].includes(name) });
    if (kind !== "check" && kind !== "choice") input.value = first(name);
    fields[name] = input;
    hints[name] = make("small", { id: `${id}-hint`, text: words });
    const parts = kind === "check" ? [input, label] : [label, input];
    return make("label", { for: id, class: kind === "check" ? "row" : null }, parts, hints[name]);
  }

  const said = (name) => (fields[name] ? fields[name].value.trim() : "");

  /** The workspace as the service reads it: JSON is YAML, so nothing that is typed can become a key. */
  function body() {
    const deployment = { nodes: Number(said(isClass ? "seats" : "nodes")), duration: said("duration") };
    for (const name of ["cpus", "gpus"]) if (said(name)) deployment[name] = Number(said(name));
    for (const name of ["memory", "finish_by"]) if (said(name)) deployment[name] = said(name);
    const start = isClass ? `${said("first")}T${said("at")}` : said("start");
    if (start) deployment.start = start;
    const section = { uri: said("image") };
    if (fields.private.checked) section.private = true;
    const workspace = { version: 1, metadata: { name: said("name"), image: section }, deployment };
    const whole = { workspace: JSON.stringify(workspace, null, 1), file: "form", account: said("account"), zone: ZONE };
    return isClass ? { ...whole, every: said("every"), until: said("until"), best_fit: fields.best_fit.checked } : whole;
  }

  function changed() {
    clearTimeout(timer);
    key = newKey();
    button.disabled = true;
    timer = setTimeout(plan, QUIET_MS);
  }

  function mark(problems = []) {
    for (const [name, hint] of Object.entries(hints)) { hint.textContent = FIELDS[name][3]; hint.className = ""; fields[name].removeAttribute("aria-invalid"); }
    for (const each of problems) {
      const short = each.key.replace(/^deployment\./, "");
      const name = KEYS[each.key] || (isClass && short === "nodes" ? "seats" : isClass && short === "start" ? "first" : short);
      if (!hints[name]) continue;
      hints[name].textContent = each.message;
      hints[name].className = "trouble";
      fields[name].setAttribute("aria-invalid", "true");
    }
  }

  async function plan() {
    if (stop) stop.abort();
    stop = new AbortController();
    if (!said("image") || !said("name")) { hint("Say which image, and what it is to be called."); return; }
    const wanted = body();
    try {
      const decision = await send("POST", "v1/plans", wanted, { signal: stop.signal });
      last = JSON.stringify(wanted);
      mark();
      button.disabled = decision.result !== "accepted";
      show(decision.result === "accepted", decision.result === "accepted" ? "It would be accepted" : decision.reason, decision);
    } catch (error) {
      if (error.name === "AbortError" || answer === null) return;
      mark(error instanceof Refusal ? error.problems : []);
      show(false, error.message);
    }
  }

  async function reserve(event) {
    event.preventDefault();
    const wanted = body();
    if (JSON.stringify(wanted) !== last) { await plan(); return; }
    button.disabled = true;
    try {
      const decision = await send("POST", "v1/reservations", wanted, { key });
      const isYes = decision.result === "accepted";
      show(isYes, isYes ? `${decision.name} is reserved` : decision.reason, decision);
    } catch (error) {
      show(false, error.message);
      button.disabled = false;
    }
  }

  async function accept(name, offered) {
    try {
      const decision = await send("POST", `v1/offers/${encodeURIComponent(name)}`, null, { key: offered });
      const isYes = decision.result === "accepted";
      show(isYes, isYes ? `${decision.name} is reserved` : decision.reason, decision);
    } catch (error) { show(false, error.message); }
  }

  /** What is missing yet is no refusal. */
  function hint(words) {
    if (answer === null) return;
    answer.className = "answer";
    answer.replaceChildren(make("p", { text: words }));
  }

  function show(isYes, words, decision = null) {
    if (answer === null) return;
    answer.className = `answer ${isYes ? "yes" : "no"}`;
    answer.replaceChildren(make("h3", { class: isYes ? "accepted" : "refused", text: words }), ...(decision ? told(decision) : []));
  }

  function told(decision) {
    const now = model.now, at = (value) => `${clock(value, now)} (${distance(value, now)})`;
    const kept = decision.occurrences.filter((each) => each.result === "accepted");
    const missed = decision.occurrences.filter((each) => each.result !== "accepted").slice(0, 8);
    const total = decision.transfers.reduce((sum, each) => sum + each.size_bytes, 0);
    const parts = [facts([
      ["name", decision.name && !decision.occurrences.length ? storyLink(decision.name) : decision.name],
      ["nodes", decision.node_count ? nodesInWords(decision.node_count, decision.nodes) : ""],
      ["time", decision.start_s !== null && decision.end_s !== null ? period(decision.start_s, decision.end_s, now) : ""],
      ["image", image(decision.image)],
      ["ready", decision.ready_s === null ? "" : `about ${at(decision.ready_s)}, ${slack(decision.slack_s)}`],
      ["to move", decision.result === "accepted" ? (total ? size(total) : "nothing") : ""],
      ["saved", decision.saved_bytes ? size(decision.saved_bytes) : ""],
      ["all", decision.occurrences.length ? [`${kept.length} of ${decision.occurrences.length} occurrences`,
        ...missed.map((each) => `not ${period(each.start_s, each.end_s, now)}: ${each.reason}`)].join("\n") : ""],
      ["price", decision.price === null ? "" : money(decision.price)],
      ["earliest", decision.earliest_start_s === null ? "" : at(decision.earliest_start_s)],
      ["or", decision.remedies.slice(0, 8).join("\n")], ["note", decision.notes.join("\n")]])];
    for (const offer of decision.offers.slice(0, 8)) {
      const words = `${offer.kind.replaceAll("-", " ")}: ${nodesInWords(offer.node_count, "")}, ${period(offer.start_s, offer.end_s, now)}`;
      const offered = newKey();
      parts.push(make("p", {}, words, " ", offer.name ? make("button", { type: "button", text: "Take it", onclick: () => accept(offer.name, offered) }) : null));
    }
    return parts;
  }

  return {
    show(content) {
      button = make("button", { class: "main", text: "Reserve", disabled: true });
      answer = make("div", { class: "answer", role: "status" });
      const images = make("datalist", { id: "images" });
      content.append(make("h2", { text: isClass ? "A class" : "Reserve nodes" }),
        make("form", { class: "grid", onsubmit: reserve, novalidate: true }, names.map(field), make("div", { class: "all" }, button)), images, answer);
      hint("Say which image: what would be answered stands here.");
      get("v1/images", { most: 200 }).then((found) => images.replaceChildren(...found.images.filter((each) => each.uri)
        .map((each) => make("option", { value: each.uri }))), () => {});
    },
    hide() { clearTimeout(timer); if (stop) stop.abort(); answer = null; },
  };
}
