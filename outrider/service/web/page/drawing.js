// The chart as pixels: tiles that are drawn once for a scale, a few in each frame, and put together while it moves.

import { KINDS } from "./schedule.js";
import { day, time, zoneOf } from "./words.js";

const TILE = 256;
const BUDGET_MS = 5;
const AXIS = 34, LANE = 12;
const STEPS_S = [1, 5, 15, 60, 300, 900, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 2592000];
const ORDER = ["down", "job", "other", "accepted", "preparing", "ready", "active", "endangered", "moving", "expected"];

export class Drawing {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.tiles = new Map();
    this.spare = [];
    this.schedule = null;
    this.user = "";
    this.view = { start: 0, perPixel: 60, top: 0, row: 10 };
    this.backdrop = null;
    this.marked = -1;
    this.isWhole = false;
    this.readColours();
    this.resize();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement), read = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colours = Object.fromEntries([...KINDS, "ground", "raised", "line", "text", "quiet", "accent", "dim", "focus"]
      .map((name) => [name, read(name)]));
    this.colours.expected = this.colours.focus;
    this.renew();
  }

  resize() {
    const box = this.canvas.getBoundingClientRect();
    this.scale = Math.min(3, window.devicePixelRatio || 1) * (window.innerWidth >= 2560 ? 1 : 1);
    this.text = parseFloat(getComputedStyle(document.documentElement).fontSize) * 0.75;
    this.width = Math.max(1, box.width);
    this.height = Math.max(1, box.height);
    this.canvas.width = Math.round(this.width * this.scale);
    this.canvas.height = Math.round(this.height * this.scale);
    this.left = Math.min(this.text * 8, this.width * 0.22);
    this.top = AXIS * this.text / 12 + LANE;
    this.renew();
  }

  /** What was drawn is no more as it is; it is shown until it is drawn anew. */
  renew() {
    if (this.isWhole) this._keep();
    for (const tile of this.tiles.values()) this.spare.push(tile);
    this.spare.length = Math.min(this.spare.length, 256);
    this.tiles.clear();
    this.isWhole = false;
  }

  get plotWidth() { return this.width - this.left; }
  get plotHeight() { return this.height - this.top; }
  get end() { return this.view.start + this.plotWidth * this.view.perPixel; }
  x(at) { return this.left + (at - this.view.start) / this.view.perPixel; }
  y(node) { return this.top + (node - this.view.top) * this.view.row; }
  instant(x) { return this.view.start + (x - this.left) * this.view.perPixel; }
  node(y) { return this.view.top + (y - this.top) / this.view.row; }

  _keep() {
    const kept = this.backdrop ? this.backdrop.canvas : document.createElement("canvas");
    kept.width = Math.max(1, Math.round(this.plotWidth * this.scale));
    kept.height = Math.max(1, Math.round(this.plotHeight * this.scale));
    kept.getContext("2d").drawImage(this.canvas, -Math.round(this.left * this.scale), -Math.round(this.top * this.scale));
    this.backdrop = { canvas: kept, ...this.shown };
  }

  /** One frame. False while tiles are missing, so that another one is wanted. */
  draw(now) {
    const { context, colours, scale } = this;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.fillStyle = colours.ground;
    context.fillRect(0, 0, this.width, this.height);
    this.isWhole = this.schedule === null ? false : this._plot();
    this.shown = { start: this.view.start, end: this.end, first: this.view.top, last: this.view.top + this.plotHeight / this.view.row };
    if (this.schedule) this._frame(now);
    return this.isWhole;
  }

  _plot() {
    const { context, scale, view } = this, began = performance.now();
    const perPixel = view.perPixel / scale, row = view.row * scale;
    const x0 = Math.round(view.start / perPixel), y0 = Math.round(view.top * row);
    const wide = Math.round(this.plotWidth * scale), high = Math.round(this.plotHeight * scale);
    const left = Math.round(this.left * scale), top = Math.round(this.top * scale);
    context.save();
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.beginPath();
    context.rect(left, top, wide, high);
    context.clip();
    const wanted = [];
    for (let i = Math.floor(x0 / TILE); i * TILE < x0 + wide; i += 1) {
      for (let j = Math.floor(y0 / TILE); j * TILE < y0 + high; j += 1) wanted.push([i, j]);
    }
    const missing = wanted.filter(([i, j]) => !this.tiles.has(`${i},${j}`));
    if (missing.length && this.backdrop) this._drawBackdrop();
    let drawn = 0;
    for (const [i, j] of missing) {
      if (drawn && performance.now() - began > BUDGET_MS) break;
      this.tiles.set(`${i},${j}`, this._tile(i, j, perPixel, row));
      drawn += 1;
    }
    context.imageSmoothingEnabled = false;
    for (const [i, j] of wanted) {
      const tile = this.tiles.get(`${i},${j}`);
      if (tile) context.drawImage(tile, left + i * TILE - x0, top + j * TILE - y0);
    }
    context.restore();
    if (this.tiles.size > 2 * wanted.length + 64) this._drop(new Set(wanted.map(([i, j]) => `${i},${j}`)));
    return drawn === missing.length;
  }

  _drop(wanted) {
    for (const [key, tile] of this.tiles) {
      if (!wanted.has(key)) { this.tiles.delete(key); this.spare.push(tile); }
    }
  }

  _drawBackdrop() {
    const { canvas, start, end, first, last } = this.backdrop, { context, scale } = this;
    const x = this.x(start) * scale, y = this.y(first) * scale;
    context.imageSmoothingEnabled = true;
    context.drawImage(canvas, x, y, this.x(end) * scale - x, this.y(last) * scale - y);
  }

  _tile(i, j, perPixel, row) {
    const tile = this.spare.pop() || document.createElement("canvas");
    if (tile.width !== TILE) { tile.width = TILE; tile.height = TILE; }
    const context = tile.getContext("2d", { alpha: false });
    context.fillStyle = this.colours.ground;
    context.fillRect(0, 0, TILE, TILE);
    const { runs, items, nodes } = this.schedule, lists = Object.fromEntries([...ORDER, "dim"].map((kind) => [kind, []]));
    const first = j * TILE / row, last = (j + 1) * TILE / row, start = i * TILE * perPixel, end = (i + 1) * TILE * perPixel;
    if (first < nodes.length && last > 0) {
      this.schedule.within(Math.max(0, Math.floor(first)), Math.min(nodes.length - 1, Math.floor(last)), start, end, (run) => {
        const owner = runs.owner[run], kind = KINDS[runs.kind[run]];
        (this.user && kind !== "down" && (owner < 0 || items.users[owner] !== this.user) ? lists.dim : lists[kind]).push(run);
      });
    }
    const gap = row >= 4 * this.scale ? this.scale : 0;
    for (const kind of ["dim", ...ORDER]) {
      context.fillStyle = this.colours[kind];
      const least = kind === "expected" ? 3 * this.scale : 1;
      for (const run of lists[kind]) {
        const x = Math.max(-2, (runs.start[run] - start) / perPixel), y = runs.first[run] * row - j * TILE;
        const until = Math.min(TILE + 2, (runs.end[run] - start) / perPixel), high = runs.count[run] * row - gap;
        context.fillRect(x, y, Math.max(least, until - x - (gap && until < TILE ? 1 : 0)), kind === "moving" ? high * 0.4 : high);
      }
    }
    if (row >= 15 * this.scale) this._names(context, lists, start, perPixel, j, row);
    return tile;
  }

  _names(context, lists, start, perPixel, j, row) {
    const { runs, names } = this.schedule;
    context.font = `${Math.min(this.text, row / this.scale * 0.7) * this.scale}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    for (const kind of ["accepted", "preparing", "ready", "active", "endangered"]) {
      for (const run of lists[kind]) {
        const x = (runs.start[run] - start) / perPixel, room = (runs.end[run] - runs.start[run]) / perPixel - 8;
        const name = names[runs.owner[run]];
        if (room < 24 || x < -4000) continue;
        context.fillStyle = this.colours.ground;
        if (context.measureText(name).width <= room) context.fillText(name, x + 4, (runs.first[run] + 0.5) * row - j * TILE);
      }
    }
  }

  _frame(now) {
    const { context, colours, view } = this;
    this._grid(now);
    context.fillStyle = colours.raised;
    context.fillRect(0, 0, this.left, this.height);
    context.fillStyle = colours.text;
    context.font = `${this.text}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    context.textAlign = "right";
    const every = Math.max(1, Math.ceil(1.5 * this.text / view.row)), nodes = this.schedule.nodes;
    for (let node = Math.ceil(Math.max(0, view.top) / every) * every; node < nodes.length; node += every) {
      const y = this.y(node + 0.5);
      if (y > this.height) break;
      if (y > this.top + this.text / 2) context.fillText(nodes[node], this.left - 5, y, this.left - 8);
    }
    context.textAlign = "left";
    this._lane();
    if (this.marked >= 0) this._mark();
  }

  /** Instants at the top, lines below them, and now. */
  _grid(now) {
    const { context, colours, view } = this;
    context.fillStyle = colours.raised;
    context.fillRect(0, 0, this.width, this.top - LANE);
    const step = STEPS_S.find((each) => each / view.perPixel >= this.text * 6) || STEPS_S.at(-1);
    const zone = zoneOf(view.start);
    context.font = `${this.text}px system-ui, sans-serif`;
    context.textBaseline = "top";
    context.lineWidth = 1;
    let before = "";
    for (let at = Math.ceil((view.start - zone) / step) * step + zone; at < this.end; at += step) {
      const x = Math.round(this.x(at)) + 0.5;
      context.strokeStyle = colours.line;
      context.globalAlpha = 0.5;
      context.beginPath();
      context.moveTo(x, this.top - LANE);
      context.lineTo(x, this.height);
      context.stroke();
      context.globalAlpha = 1;
      context.fillStyle = colours.text;
      if (step < 86400) context.fillText(time(at, step < 60), x + 2, this.text * 1.3);
      if (day(at) !== before) { before = day(at); context.fillText(before, x + 2, 2); }
    }
    const x = this.x(now);
    if (x >= this.left && x <= this.width) {
      context.strokeStyle = colours.focus;
      context.lineWidth = 2;
      context.beginPath();
      context.moveTo(x, this.top - LANE);
      context.lineTo(x, this.height);
      context.stroke();
    }
  }

  /** The link: what crosses it, or will. */
  _lane() {
    const { context, colours } = this, y = this.top - LANE;
    context.fillStyle = colours.raised;
    context.fillRect(0, y, this.width, LANE - 1);
    context.fillStyle = colours.moving;
    for (const each of this.schedule.transfers) {
      const from = Math.max(this.left, this.x(each.begin_s)), until = Math.min(this.width, this.x(each.ready_s ?? each.begin_s));
      if (until > this.left && from < this.width) context.fillRect(from, y + 1, Math.max(1, until - from), LANE - 3);
    }
    context.fillStyle = colours.raised;
    context.fillRect(0, y, this.left, LANE - 1);
    context.fillStyle = colours.quiet;
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.fillText("link", this.left - 5, y + LANE / 2);
    context.textAlign = "left";
  }

  _mark() {
    const { context, colours } = this, { items } = this.schedule, runs = items.nodes[this.marked];
    context.save();
    context.beginPath();
    context.rect(this.left, this.top, this.plotWidth, this.plotHeight);
    context.clip();
    context.strokeStyle = colours.text;
    context.lineWidth = 2;
    const x = this.x(items.starts_s[this.marked]), wide = Math.max(3, this.x(items.ends_s[this.marked]) - x);
    for (let at = 0; at < Math.min(runs.length, 400); at += 2) {
      context.strokeRect(x, this.y(runs[at]), wide, Math.max(2, runs[at + 1] * this.view.row));
    }
    context.restore();
  }
}
