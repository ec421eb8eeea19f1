// The view of nodes over time: moved by pointer, wheel and keys, with a table in its place for who wants one.

import { Drawing } from "./drawing.js";
import { clock, distance, make, period, span, state, storyLink, table } from "./words.js";

const MOST_ROWS = 200;
const HOURS = 24;
const WIDEST_S = 400 * 86400;
const KEY = [["accepted", "accepted"], ["preparing", "image on its way"], ["ready", "image there"], ["active", "active"],
  ["endangered", "endangered"], ["job", "jobs"], ["other", "reserved elsewhere"], ["moving", "transfer"],
  ["expected", "job expected to start"], ["down", "not available"]];

export class Timeline {
  constructor(model, open) {
    this.model = model;
    this.open = open;
    this.isTable = false;
    this.pointers = new Map();
    this.user = "";
  }

  show(place) {
    this.canvas = make("canvas", { tabindex: 0, role: "application", "aria-roledescription": "timeline",
      "aria-label": "Nodes over time. Arrows move, plus and minus zoom, Shift with them zooms rows, Home is now, 0 is everything. The table has the same in words." });
    this.tip = make("div", { class: "tip", hidden: true });
    this.chart = make("div", { class: "chart" }, this.canvas, this.tip);
    this.words = make("p", { class: "hidden", "aria-live": "polite" });
    this.tablePlace = make("div");
    this.users = make("datalist", { id: "users" });
    const filter = make("input", { list: "users", id: "user", type: "search", value: this.user, autocomplete: "off",
      oninput: (event) => this.filter(event.target.value.trim()) });
    const button = (text, label, act) => make("button", { type: "button", "aria-label": label, title: label, onclick: act, text });
    this.switch = make("button", { type: "button", "aria-pressed": String(this.isTable), onclick: () => this.toggle(), text: "As a table" });
    const icons = KEY.map(([kind, text]) => {
      const icon = make("i");
      icon.style.setProperty("background", `var(--${kind === "expected" ? "focus" : kind})`);
      return make("li", {}, icon, text);
    });
    place.append(make("h2", { class: "hidden", text: "Timeline" }),
      make("div", { class: "bar" }, make("label", {}, "User", filter), this.users,
        button("Now", "Now, and the next day", () => this.home()), button("All", "All of it", () => this.everything()),
        button("+", "Zoom into time", () => this.zoom(0.5)), button("\u2212", "Zoom out of time", () => this.zoom(2)),
        button("\u2195+", "Taller rows", () => this.rows(2)), button("\u2195\u2212", "Lower rows", () => this.rows(0.5)), this.switch),
      this.chart, this.tablePlace, this.words, make("ul", { class: "key", "aria-label": "Colours" }, icons));
    this.drawing = new Drawing(this.canvas);
    this._listen();
    if (this.kept) Object.assign(this.drawing.view, this.kept);
    this.update();
  }

  hide() {
    if (this.drawing && this.drawing.schedule) this.kept = { ...this.drawing.view };
    this.observer.disconnect();
    cancelAnimationFrame(this.wanted);
    this.wanted = 0;
    this.drawing = null;
  }

  /** What is known has changed, or its colours. */
  update() {
    if (!this.drawing || !this.model.schedule) return;
    const isFirst = this.drawing.schedule === null;
    this.drawing.schedule = this.model.schedule;
    this.drawing.marked = -1;
    this.drawing.readColours();
    this.users.replaceChildren(...this.model.schedule.users().slice(0, 500).map((user) => make("option", { value: user })));
    if (isFirst && !this.kept) this.home();
    this._settle();
  }

  filter(user) {
    this.user = user;
    this.drawing.user = this.model.schedule && this.model.schedule.items.users.includes(user) ? user : "";
    this.drawing.renew();
    this._settle();
  }

  toggle() {
    this.isTable = !this.isTable;
    this.switch.setAttribute("aria-pressed", String(this.isTable));
    this._settle();
  }

  home() {
    const { drawing, model } = this, hours = window.innerWidth < 600 ? HOURS / 3 : HOURS;
    const width = drawing.plotWidth, count = Math.max(1, model.schedule ? model.schedule.nodes.length : 1);
    drawing.view = { start: model.now - hours * 3600 / 12, perPixel: hours * 3600 / width, top: 0,
      row: Math.max(drawing.plotHeight / count, Math.min(20, drawing.plotHeight / count)) };
    drawing.view.row = Math.min(drawing.view.row, 2 * drawing.text);
    this._moved(true);
  }

  everything() {
    const { drawing, model } = this, { starts_s: starts, ends_s: ends } = model.schedule.items;
    const reduce = (list, act, first) => list.reduce((one, other) => act(one, other), first);
    const start = reduce(starts, Math.min, model.now), end = reduce(ends, Math.max, model.now + 3600);
    const count = Math.max(1, model.schedule.nodes.length);
    drawing.view = { start: start - (end - start) / 50, perPixel: (end - start) * 1.04 / drawing.plotWidth, top: 0,
      row: Math.min(2 * drawing.text, drawing.plotHeight / count) };
    this._moved(true);
  }

  zoom(factor, x = this.drawing.left + this.drawing.plotWidth / 2) {
    const { drawing } = this, at = drawing.instant(x), width = drawing.plotWidth;
    drawing.view.perPixel = Math.max(1 / 60, Math.min(WIDEST_S / width, drawing.view.perPixel * factor));
    drawing.view.start = at - (x - drawing.left) * drawing.view.perPixel;
    this._moved(true);
  }

  rows(factor, y = this.drawing.top + this.drawing.plotHeight / 2) {
    const { drawing } = this, node = drawing.node(y), count = Math.max(1, this.model.schedule.nodes.length);
    const least = Math.min(2 * drawing.text, drawing.plotHeight / count);
    drawing.view.row = Math.max(least, Math.min(60, drawing.view.row * factor));
    drawing.view.top = node - (y - drawing.top) / drawing.view.row;
    this._moved(true);
  }

  move(byX, byY) {
    this.drawing.view.start += byX * this.drawing.view.perPixel;
    this.drawing.view.top += byY / this.drawing.view.row;
    this._moved(false);
  }

  /** Within the nodes and the times that there can be. */
  _moved(isScaled) {
    const { drawing, model } = this;
    if (!model.schedule) return;
    const room = Math.max(0, model.schedule.nodes.length - drawing.plotHeight / drawing.view.row);
    drawing.view.top = Math.max(0, Math.min(room, drawing.view.top));
    drawing.view.start = Math.max(model.now - WIDEST_S, Math.min(model.now + WIDEST_S, drawing.view.start));
    if (isScaled) drawing.renew();
    this.tip.hidden = true;
    this.want();
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this._settle(), 300);
  }

  want() {
    if (this.wanted) return;
    this.wanted = requestAnimationFrame(() => {
      this.wanted = 0;
      if (!this.drawing) return;
      if (!this.drawing.draw(this.model.now)) { if (this.drawing.schedule) this.want(); return; }
      if (!this.isDrawn) { this.isDrawn = true; performance.mark("timeline drawn"); }
    });
  }

  /** What is seen, in words and, if wanted, as a table. */
  _settle() {
    if (!this.drawing || !this.model.schedule) return;
    const { drawing, model: { schedule, now } } = this;
    this.chart.hidden = this.isTable;
    const { total, shown } = schedule.listed(drawing.view.start, drawing.end, this.user, MOST_ROWS);
    const whose = this.user ? ` of ${this.user}` : "";
    const more = total > shown.length ? `, the first ${shown.length} of them` : "";
    const words = `${total} reservations${whose} on ${schedule.nodes.length} nodes from ${clock(drawing.view.start, now)} to ${clock(drawing.end, now)}${more}`;
    this.words.textContent = words;
    const items = schedule.items;
    this.tablePlace.replaceChildren(...(this.isTable ? [table(words, [
      ["reservation", (at) => (this.open ? storyLink(items.names[at]) : items.names[at])], ["user", (at) => items.users[at]],
      ["state", (at) => state(items.states[at])], ["time", (at) => period(items.starts_s[at], items.ends_s[at], now)],
      ["count", (at) => String(schedule.nodeCount(at)), "number"], ["nodes", (at) => schedule.nodesOf(at)],
      ["image ready", (at) => clock(items.ready_s[at], now)]], shown)] : []));
    this.want();
  }

  _listen() {
    const { canvas } = this;
    this.observer = new ResizeObserver(() => { if (this.drawing) { this.drawing.resize(); this._moved(true); } });
    this.observer.observe(this.chart);
    canvas.addEventListener("pointerdown", (event) => this._down(event));
    canvas.addEventListener("pointermove", (event) => this._drag(event));
    for (const name of ["pointerup", "pointercancel", "pointerleave"]) canvas.addEventListener(name, (event) => this._up(event));
    canvas.addEventListener("wheel", (event) => this._wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this._key(event));
  }

  _down(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY, far: 0 });
  }

  _drag(event) {
    const pointer = this.pointers.get(event.pointerId);
    if (!pointer) { this._hover(event.offsetX, event.offsetY); return; }
    const others = [...this.pointers.values()].filter((each) => each !== pointer);
    const byX = pointer.x - event.offsetX, byY = pointer.y - event.offsetY;
    if (others.length) {
      const before = Math.abs(pointer.x - others[0].x), after = Math.abs(event.offsetX - others[0].x);
      if (before > 10 && after > 10) this.zoom(before / after, others[0].x);
    } else this.move(byX, byY);
    pointer.far += Math.abs(byX) + Math.abs(byY);
    pointer.x = event.offsetX;
    pointer.y = event.offsetY;
  }

  _up(event) {
    const pointer = this.pointers.get(event.pointerId);
    this.pointers.delete(event.pointerId);
    if (event.type === "pointerleave") { this.tip.hidden = true; this._mark(-1); }
    if (event.type !== "pointerup" || !pointer || pointer.far > 5) return;
    const found = this._found(event.offsetX, event.offsetY).find((run) => this.model.schedule.runs.owner[run] >= 0);
    if (event.pointerType === "touch") this._hover(event.offsetX, event.offsetY);
    else if (found !== undefined && this.open) this.open(this.model.schedule.names[this.model.schedule.runs.owner[found]]);
  }

  _found(x, y) {
    const { drawing, model: { schedule } } = this, node = Math.floor(drawing.node(y));
    if (!schedule || x < drawing.left || y < drawing.top || node < 0 || node >= schedule.nodes.length) return [];
    return schedule.at(node, drawing.instant(x), 3 * drawing.view.perPixel);
  }

  _mark(owner) {
    if (this.drawing && this.drawing.marked !== owner) { this.drawing.marked = owner; this.want(); }
  }

  _hover(x, y) {
    const { drawing, model: { schedule, now } } = this;
    if (!schedule || x < drawing.left || y < drawing.top) { this.tip.hidden = true; return; }
    const found = this._found(x, y), { runs, names, items, transfers } = schedule, node = Math.floor(drawing.node(y));
    const lines = [`${schedule.nodes[node] ?? ""}, ${clock(drawing.instant(x), now)}`];
    for (const run of found.slice(0, 4)) {
      const owner = runs.owner[run];
      if (owner >= 0) {
        lines.push(`${names[owner]} of ${items.users[owner]}: ${items.states[owner]}`, period(items.starts_s[owner], items.ends_s[owner], now));
        if (items.ready_s[owner]) lines.push(`image on all nodes: ${clock(items.ready_s[owner], now)} (${distance(items.ready_s[owner], now)})`);
      } else if (schedule.jobOf(run)) {
        const { job, user, start_s: start } = schedule.jobOf(run);
        lines.push(`job ${job} of ${user}: expected to start ${clock(start, now)} (${distance(start, now)})`);
      } else if (owner < -1) {
        const each = transfers[-2 - owner];
        lines.push(`transfer, ${each.state}: ${clock(each.begin_s, now)}, ${span((each.ready_s ?? now) - each.begin_s)}`);
      } else lines.push({ 5: `jobs until about ${clock(runs.end[run], now)}`, 6: "reserved in the batch system", 7: "not available" }[runs.kind[run]]);
    }
    const owner = found.map((run) => runs.owner[run]).find((each) => each >= 0);
    this._mark(owner === undefined ? -1 : owner);
    this.tip.hidden = false;
    this.tip.textContent = lines.join("\n");
    const wide = this.tip.offsetWidth, high = this.tip.offsetHeight;
    this.tip.style.left = `${Math.max(0, Math.min(x + 14, drawing.width - wide - 2))}px`;
    this.tip.style.top = `${y + 18 + high > drawing.height ? Math.max(0, y - high - 8) : y + 18}px`;
  }

  _wheel(event) {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 20 : 1, by = (event.deltaY || event.deltaX) * unit;
    if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(by / 400), event.offsetX);
    else if (event.altKey) this.rows(Math.exp(-by / 400), event.offsetY);
    else if (event.shiftKey) this.move(by, 0);
    else this.move(event.deltaX * unit, event.deltaY * unit);
  }

  _key(event) {
    const { drawing } = this, far = 0.1 * drawing.plotWidth, high = 0.9 * drawing.plotHeight;
    const act = { ArrowLeft: () => this.move(-far, 0), ArrowRight: () => this.move(far, 0), ArrowUp: () => this.move(0, -40),
      ArrowDown: () => this.move(0, 40), PageUp: () => this.move(0, -high), PageDown: () => this.move(0, high),
      Home: () => this.home(), 0: () => this.everything(), "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2),
      "*": () => this.rows(2), _: () => this.rows(0.5) }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (event.shiftKey && event.key === "+") this.rows(2); else act();
  }
}
