// Values in words as the commands say them, and elements of the page made of texts alone.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** An element with its properties and children; texts stay texts. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "text") element.textContent = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function size(bytes) {
  let value = bytes, unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

export function rate(bytesPerSecond) { return `${size(bytesPerSecond)}/s`; }

export function span(seconds) {
  const total = Math.max(0, Math.round(seconds));
  const days = Math.floor(total / 86400), hours = Math.floor(total / 3600) % 24;
  const minutes = Math.floor(total / 60) % 60, rest = total % 60;
  if (days) return hours ? `${days} d ${hours} h` : `${days} d`;
  if (hours) return minutes ? `${hours} h ${minutes} min` : `${hours} h`;
  if (minutes) return rest ? `${minutes} min ${rest} s` : `${minutes} min`;
  return `${rest} s`;
}

let isCounted = false;

/** From now on instants are those of a simulation, which begins with day 0. */
export function countFromZero() { isCounted = true; }

/** How far the day's beginning is from that of a day in UTC. */
export function zoneOf(at) { return isCounted ? 0 : new Date(at * 1000).getTimezoneOffset() * 60; }

const two = (number) => String(number).padStart(2, "0");

/** 2027-01-20, where the browser is. */
export function day(at) {
  if (isCounted) return `day ${Math.floor(at / 86400)}`;
  const date = new Date(at * 1000);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

export function time(at, withSeconds = false) {
  const date = new Date((at + (isCounted ? new Date(at * 1000).getTimezoneOffset() * 60 : 0)) * 1000);
  return `${two(date.getHours())}:${two(date.getMinutes())}${withSeconds ? `:${two(date.getSeconds())}` : ""}`;
}

/** The time alone today, else with its date. */
export function clock(at, now) {
  if (at === null || at === undefined) return "-";
  return day(at) === day(now) ? time(at, true) : `${day(at)} ${time(at)}`;
}

export function period(start, end, now) {
  const until = day(start) === day(end) ? time(end) : clock(end, now);
  return `${clock(start, now)} to ${until} (${span(end - start)})`;
}

export function distance(at, now) {
  return at >= now ? `in ${span(at - now)}` : `${span(now - at)} ago`;
}

export function slack(seconds) {
  if (seconds === null || seconds === undefined) return "";
  return seconds >= 0 ? `${span(seconds)} before the start` : `${span(-seconds)} after the start`;
}

/** 1 node, 2 nodes. */
export function many(count, noun) { return `${count} ${noun}${count === 1 ? "" : "s"}`; }

export function nodesInWords(count, nodes) {
  return `${many(count, "node")}${nodes ? `: ${nodes}` : ""}`;
}

export function image(view) {
  if (!view) return "-";
  const name = view.uri ? view.uri.split("/").pop() : view.digest ? view.digest.slice(0, 19) : "not yours to see";
  return `${name}, ${size(view.size_bytes)}${view.is_private ? ", private" : ""}`;
}

export function money(thousandths) { return (thousandths / 1000).toFixed(thousandths % 10 ? 3 : 2); }

/** A list of names and values; those without a value are left out. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value);
  return make("dl", {}, shown.flatMap(([name, value]) => [make("dt", { text: name }), make("dd", {}, value)]));
}

/** A table; columns are [title, cell, class], and a cell is a text or an element. */
export function table(caption, columns, rows) {
  const cells = (row) => columns.map(([, cell, kind], at) => {
    const value = cell(row);
    return make(at === 0 ? "th" : "td", { class: kind, scope: at === 0 ? "row" : null }, value ?? "");
  });
  return make("div", { class: "wide", role: "region", "aria-label": caption, tabindex: 0 }, make("table", {},
    make("caption", { text: caption }),
    make("thead", {}, make("tr", {}, columns.map(([title, , kind]) => make("th", { class: kind, scope: "col", text: title })))),
    make("tbody", {}, rows.map((row) => make("tr", {}, cells(row))))));
}

export function state(word) { return make("span", { class: `state-${word}`, text: word }); }

export function storyLink(name) { return make("a", { href: `#story/${encodeURIComponent(name)}`, text: name }); }
