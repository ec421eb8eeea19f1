// The overview in memory: runs of nodes over time, found by where they are.

const BLOCK = 64;
export const KINDS = ["accepted", "preparing", "ready", "active", "endangered", "job", "other", "down", "moving", "expected"];

/** Growing columns of whole numbers. */
class Columns {
  constructor(count) {
    this.first = new Int32Array(count); this.count = new Int32Array(count);
    this.start = new Float64Array(count); this.end = new Float64Array(count);
    this.kind = new Uint8Array(count); this.owner = new Int32Array(count);
  }
}

/** n[1-3,7] as runs of neighbours by their places; what is no node here is left out. */
export function neighbours(text, places) {
  const found = expand(text).map((name) => places.get(name)).filter((at) => at !== undefined).sort((a, b) => a - b);
  const runs = [];
  for (const at of found) {
    if (runs.length && at === runs[runs.length - 2] + runs[runs.length - 1]) runs[runs.length - 1] += 1;
    else runs.push(at, 1);
  }
  return runs;
}

/** The names of a set of nodes as the service writes it, at most 20,000. */
export function expand(text) {
  const names = [];
  for (const part of text.match(/[^,\[\]]*(?:\[[^\]]*\][^,\[\]]*)?/g) || []) {
    const [, before, inside, after] = /^([^[]*)(?:\[([^\]]*)\](.*))?$/.exec(part) || [];
    if (!part) continue;
    if (inside === undefined) { names.push(part); continue; }
    for (const range of inside.split(",")) {
      const [low, high = low] = range.split("-"), wide = low.length;
      for (let number = Number(low); number <= Number(high) && names.length < 20000; number += 1) {
        names.push(before + String(number).padStart(wide, "0") + after);
      }
    }
  }
  return names;
}

/** A schedule: `runs` are stretches of neighbouring nodes, `items` what they belong to. */
export class Schedule {
  /** `transfers` and `jobs` are lists of the API's: what is on its way, and when who waits is expected to start. */
  constructor(answer, now, transfers = [], jobs = []) {
    this.nodes = answer.nodes;
    this.isComplete = answer.is_complete;
    this.items = answer.reservations;
    this.names = this.items.names;
    this.now = now;
    const { reservations, taken } = answer;
    this.transfers = transfers;
    this.waiting = jobs.filter((each) => each.start_s !== null && each.state !== "running");
    const places = new Map(this.nodes.map((name, at) => [name, at]));
    const moving = transfers.map((each) => neighbours(each.nodes, places));
    const { waiting } = this, beyond = -2 - transfers.length;
    const expected = waiting.map((each) => neighbours(each.nodes, places));
    const lists = [[answer.unavailable], taken.nodes, reservations.nodes, moving, expected];
    const total = lists.flat().reduce((sum, runs) => sum + runs.length / 2, 0);
    this.runs = new Columns(total);
    this.length = 0;
    this._add(answer.unavailable, -1e15, 1e15, "down", -1);
    taken.nodes.forEach((runs, at) => this._add(runs, taken.starts_s[at], taken.ends_s[at], taken.kinds[at], -1));
    reservations.nodes.forEach((runs, at) => {
      this._add(runs, reservations.starts_s[at], reservations.ends_s[at], reservations.states[at], at);
    });
    moving.forEach((runs, at) => this._add(runs, transfers[at].begin_s, transfers[at].ready_s ?? now, "moving", -2 - at));
    expected.forEach((runs, at) => this._add(runs, waiting[at].start_s, waiting[at].start_s + 1, "expected", beyond - at));
    this._index();
  }

  _add(runs, start, end, kind, owner) {
    const columns = this.runs, code = Math.max(0, KINDS.indexOf(kind));
    for (let at = 0; at < runs.length; at += 2) {
      const place = this.length++;
      columns.first[place] = runs[at]; columns.count[place] = runs[at + 1];
      columns.start[place] = start; columns.end[place] = end;
      columns.kind[place] = code; columns.owner[place] = owner;
    }
  }

  /** By blocks of nodes, the runs that touch them. */
  _index() {
    const { first, count } = this.runs, blocks = Math.max(1, Math.ceil(this.nodes.length / BLOCK));
    const sizes = new Int32Array(blocks + 1);
    const each = (run, act) => {
      const last = Math.min(blocks - 1, Math.floor((first[run] + count[run] - 1) / BLOCK));
      for (let block = Math.floor(first[run] / BLOCK); block <= last; block += 1) act(block);
    };
    for (let run = 0; run < this.length; run += 1) each(run, (block) => { sizes[block + 1] += 1; });
    for (let block = 0; block < blocks; block += 1) sizes[block + 1] += sizes[block];
    this.offsets = sizes.slice();
    this.inBlock = new Int32Array(sizes[blocks]);
    const fill = sizes.slice();
    for (let run = 0; run < this.length; run += 1) each(run, (block) => { this.inBlock[fill[block]++] = run; });
    this.stamp = new Int32Array(this.length);
    this.turn = 0;
  }

  /** Calls `act` with each run within these nodes and times, once, in the order of drawing. */
  within(firstNode, lastNode, start, end, act) {
    const blocks = this.offsets.length - 1, { first, count, start: starts, end: ends } = this.runs;
    const from = Math.max(0, Math.floor(firstNode / BLOCK)), to = Math.min(blocks - 1, Math.floor(lastNode / BLOCK));
    this.turn += 1;
    for (let block = from; block <= to; block += 1) {
      for (let at = this.offsets[block]; at < this.offsets[block + 1]; at += 1) {
        const run = this.inBlock[at];
        if (this.stamp[run] === this.turn) continue;
        this.stamp[run] = this.turn;
        if (starts[run] < end && ends[run] > start && first[run] <= lastNode && first[run] + count[run] > firstNode) act(run);
      }
    }
  }

  /** What is on a node at an instant, what was drawn last first; within `slack`, starts that are expected. */
  at(node, instant, slack = 0) {
    const found = [], { start, end, kind } = this.runs;
    this.within(node, node, instant - slack, instant + 1 + slack, (run) => {
      const isNow = start[run] <= instant && end[run] > instant;
      if (isNow || KINDS[kind[run]] === "expected") found.push(run);
    });
    return found.reverse();
  }

  /** The job that a run is the expected start of, if it is one. */
  jobOf(run) { return this.waiting[-2 - this.transfers.length - this.runs.owner[run]]; }

  users() { return [...new Set(this.items.users)].sort(); }

  /** Reservations within some time, in the order of their starts, and how many there are. */
  listed(start, end, user, most) {
    const { starts_s: starts, ends_s: ends, users, names } = this.items, found = [];
    for (let at = 0; at < names.length; at += 1) {
      if (starts[at] < end && ends[at] > start && (!user || users[at] === user)) found.push(at);
    }
    found.sort((one, other) => starts[one] - starts[other] || one - other);
    return { total: found.length, shown: found.slice(0, most) };
  }

  /** A reservation's nodes by name, as far as `most`. */
  nodesOf(at, most = 4) {
    const runs = this.items.nodes[at], parts = [];
    for (let place = 0; place < runs.length && parts.length < most; place += 2) {
      const first = this.nodes[runs[place]], last = this.nodes[runs[place] + runs[place + 1] - 1];
      parts.push(first === last ? first : `${first} to ${last}`);
    }
    return parts.join(", ") + (runs.length / 2 > most ? ` and ${runs.length / 2 - most} more` : "");
  }

  nodeCount(at) {
    return this.items.nodes[at].reduce((sum, value, place) => sum + (place % 2 ? value : 0), 0);
  }
}
