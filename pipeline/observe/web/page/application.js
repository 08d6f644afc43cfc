// Draws an application: its streams side by side, and which node reads what.
import { clipped, element, picture, shape } from "./graph.js";

const WIDTH = 168, HEIGHT = 62, GAP = 46, RECENT_S = 2;
const shown = new Map();

const rate = (value, noun) => `${value.toFixed(value >= 100 ? 0 : 1)} ${noun}/s`;

export function drawStreams(place, streams) {
  for (const stream of streams) {
    if (!shown.has(stream.name)) shown.set(stream.name, place.appendChild(makeStream(stream.name)));
    fillStream(shown.get(stream.name), stream);
  }
}

// Kept from update to update: a picture that is made anew blinks.
function makeStream(name) {
  const box = element("figure", undefined, { className: "stream" });
  box.dataset.stream = name;
  const frame = element("div", undefined, { className: "picture" });
  frame.append(element("img", undefined, { alt: `newest picture of ${name}`, hidden: true }), shape("svg"));
  box.append(element("figcaption"), frame, element("p", undefined, { className: "triggers" }), element("p"));
  return box;
}

function fillStream(box, stream) {
  const [caption, frame, triggers, text] = box.children;
  const ends = Object.entries(stream.ends).map(([end, count]) => `${count} ${end}`).join(", ");
  caption.replaceChildren(element("b", stream.name), element("span", rate(stream.per_s, "frames")), element("span", ends, { className: "soft" }));
  const image = frame.querySelector("img");
  image.hidden = !stream.picture;
  if (stream.picture && image.src !== stream.picture) image.src = stream.picture;
  drawShapes(frame.querySelector("svg"), stream.shapes ?? []);
  triggers.replaceChildren(...stream.triggers.map((trigger) => {
    const ago = trigger.seconds === null ? "" : `, ${Math.floor(trigger.seconds)} s ago`;
    const chip = element("span", `${trigger.name}: ${trigger.count}${ago}`, { className: "trigger" });
    chip.classList.toggle("lit", trigger.seconds !== null && trigger.seconds < RECENT_S);
    return chip;
  }));
  text.textContent = stream.error ?? stream.text ?? "no frame yet";
  text.className = stream.error ? "error" : "soft";
}

function drawShapes(drawing, shapes) {
  drawing.setAttribute("viewBox", "0 0 1 1");
  drawing.setAttribute("preserveAspectRatio", "none");
  drawing.replaceChildren(...shapes.map((each) => {
    const found = shape(each.zone ? "polygon" : "polyline", { class: "zone", points: each.points.map((point) => point.join(",")).join(" ") });
    found.append(shape("title", {}, each.name));
    return found;
  }));
}

// A node's level is one more than the highest of what it reads: columns where there is room, else rows.
export function drawNodes(place, nodes, edges) {
  const levels = new Map();
  for (const { name } of nodes) {
    const reads = edges.filter(([, to]) => to === name).map(([from]) => levels.get(from));
    levels.set(name, reads.length ? Math.max(...reads) + 1 : 0);
  }
  const columns = [];
  for (const node of nodes) (columns[levels.get(node.name)] ??= []).push(node);
  const room = place.clientWidth, skips = edges.filter(([from, to]) => levels.get(to) - levels.get(from) > 1);
  const upright = columns.length * (WIDTH + GAP) - GAP > room;
  const lanes = skips.length ? 12 + 12 * skips.length : 0;
  const places = upright ? stack(columns, room - lanes) : spread(columns);
  const ends = [...places.values()];
  const width = Math.max(...ends.map((each) => each.x + each.width)), height = Math.max(...ends.map((each) => each.y + HEIGHT));
  const drawing = picture(place, width + 2 + (upright ? lanes : 0), height + 2 + (upright ? 0 : lanes), "graph of the application");
  for (const edge of edges) {
    const [from, to] = edge.map((name) => places.get(name)), lane = skips.indexOf(edge);
    drawing.append(shape("path", { class: "edge", d: route(from, to, upright, lane < 0 ? 0 : (upright ? width : height) + 12 * (lane + 1)) }));
    const tip = upright ? `M ${to.x + to.width / 2} ${to.y} l -5 -9 h 10 z` : `M ${to.x} ${to.y + HEIGHT / 2} l -9 -5 v 10 z`;
    drawing.append(shape("path", { class: "tip", d: tip }));
  }
  for (const node of nodes) drawing.append(box(node, places.get(node.name)));
}

function spread(columns) {
  const tall = Math.max(...columns.map((column) => column.length)) * (HEIGHT + 18);
  return new Map(columns.flatMap((column, level) => column.map((node, row) =>
    [node.name, { x: 1 + level * (WIDTH + GAP), y: 1 + (tall * (row + 0.5)) / column.length - HEIGHT / 2 - 9, width: WIDTH }])));
}

function stack(columns, room) {
  const made = new Map(), most = Math.max(1, Math.floor(room / 104));
  let y = 1;
  for (const level of columns) {
    for (let first = 0; first < level.length; first += most, y += HEIGHT + 34) {
      const row = level.slice(first, first + most), step = room / row.length, width = Math.min(WIDTH, step - 10);
      row.forEach((node, number) => made.set(node.name, { x: step * (number + 0.5) - width / 2, y, width }));
    }
  }
  return made;
}

// Past other levels in a lane of its own, so that no line seems to end at a box between.
function route(from, to, upright, lane) {
  if (upright) {
    const x = from.x + from.width / 2, y = from.y + HEIGHT, end = to.x + to.width / 2, last = to.y - 8;
    if (lane) return `M ${x + 12} ${y} v 9 H ${lane} V ${last - 9} H ${end} V ${last}`;
    return `M ${x} ${y} C ${x} ${y + 18} ${end} ${last - 18} ${end} ${last}`;
  }
  const x = from.x + WIDTH, y = from.y + HEIGHT / 2, end = to.y + HEIGHT / 2, last = to.x - 8;
  if (lane) return `M ${x} ${y + 12} h 12 V ${lane} H ${last - 14} V ${end} H ${last}`;
  return `M ${x} ${y} C ${x + 22} ${y} ${last - 22} ${end} ${last} ${end}`;
}

function box(node, { x, y, width }) {
  const group = shape("g", { transform: `translate(${x} ${y})` });
  group.dataset.node = node.name;
  const crops = node.crops_per_s === null ? "" : `, ${rate(node.crops_per_s, "crops")}`;
  const letters = Math.floor((width - 16) / 7.2);
  group.append(shape("title", {}, `${node.kind} ${node.name} ${node.fact}: ${rate(node.per_s, "frames")}${crops}`));
  group.append(shape("rect", { class: node.kind === "model" ? "box model" : "box", width, height: HEIGHT, rx: 9 }));
  group.append(shape("text", { class: "name", x: 8, y: 19 }, clipped(node.name, letters)));
  group.append(shape("text", { class: "soft", x: 8, y: 36 }, clipped(`${node.kind} ${node.fact}`, letters)));
  group.append(shape("text", { x: 8, y: 54 }, clipped(node.crops_per_s === null ? rate(node.per_s, width < 120 ? "fr" : "frames") : rate(node.crops_per_s, "crops"), letters)));
  return group;
}
