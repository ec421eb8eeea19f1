// What each node is, and how full its pool is; and which images are where.

import { get } from "./api.js";
import { clock, image, make, many, size, state, storyLink, table } from "./words.js";

const AT_A_TIME = 200;

export function showNodes(model) {
  const wish = { names: "" };
  let place = null, images = null, note = null, rows = [], following = "", stop = null;

  async function load(after) {
    if (stop) stop.abort();
    stop = new AbortController();
    try {
      const asked = { names: wish.names, after, most: AT_A_TIME };
      const [found, kept] = await Promise.all([get("v1/nodes", asked, stop.signal), get("v1/images", { most: AT_A_TIME }, stop.signal)]);
      rows = after ? [...rows, ...found.nodes] : found.nodes;
      following = found.next_after;
      note.textContent = "";
      draw(kept);
    } catch (error) {
      if (error.name !== "AbortError") note.textContent = error.message;
    }
  }

  function draw(kept) {
    if (place === null) return;
    const more = following ? make("button", { type: "button", onclick: () => load(following), text: `The next ${AT_A_TIME}` }) : null;
    place.replaceChildren(table(`${many(rows.length, "node")}${following ? ", and more" : ""}`, [
      ["node", (each) => each.name], ["state", (each) => state(each.state)], ["capacity", (each) => each.capacity],
      ["pool", (each) => pool(each)], ["images", (each) => `${each.images}${each.arriving ? `, ${each.arriving} arriving` : ""}`, "number"],
      ["now", (each) => (each.reservation ? storyLink(each.reservation) : "")],
      ["next", (each) => clock(each.next_reservation_s, model.now)], ["", (each) => each.words]], rows), ...(more ? [more] : []));
    images.replaceChildren(table(`${many(kept.images.length, "image")}${kept.is_complete ? "" : ", and more"}`, [
      ["image", (each) => image(each)], ["nodes", (each) => `${each.node_count}${each.nodes ? `: ${short(each.nodes)}` : ""}`],
      ["coming to", (each) => short(each.coming_nodes)], ["reservations", (each) => String(each.reservations), "number"],
      ["jobs", (each) => String(each.jobs), "number"], ["of", (each) => each.owners.join(", ")]], kept.images));
  }

  return {
    show(content) {
      note = make("p", { class: "trouble", role: "alert" });
      place = make("div");
      images = make("div");
      const names = make("input", { type: "search", placeholder: "n[1-64]", size: 16, autocomplete: "off" });
      const ask = (event) => { event.preventDefault(); wish.names = names.value.trim(); load(""); };
      content.append(make("h2", { text: "Nodes and their pools" }),
        make("form", { class: "bar", onsubmit: ask }, make("label", {}, "Nodes", names), make("button", { text: "Show" })),
        note, place, make("h3", { text: "Images" }), images);
      load("");
    },
    update() { if (rows.length <= AT_A_TIME) load(""); },
    hide() { if (stop) stop.abort(); place = null; },
  };
}

function short(nodes) { return nodes.length > 60 ? `${nodes.slice(0, 57)}...` : nodes; }

function pool(node) {
  if (node.used_bytes === null || !node.limit_bytes) return "not known";
  const words = `${size(node.used_bytes)} of ${size(node.limit_bytes)}`;
  const bar = make("meter", { min: 0, max: node.limit_bytes, value: node.used_bytes, high: node.limit_bytes * 0.9, "aria-label": `pool of ${node.name}` });
  return make("span", {}, bar, ` ${words}`);
}
