// Draws the stages and what travels between them: side by side where there is room, else one below the other.
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 190, HEIGHT = 112, GAP = 84, PORT = 44;

export function shape(name, attributes = {}, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export function element(name, text, properties = {}) {
  const made = Object.assign(document.createElement(name), properties);
  if (text !== undefined) made.textContent = text;
  return made;
}

export function picture(place, width, height, label) {
  const made = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  place.replaceChildren(made);
  return made;
}

export const clipped = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

const short = (value) => (value >= 100 ? value.toFixed(0) : Number(value.toPrecision(3)).toString());

export function bytes(count) {
  if (count < 1000) return `${count} B`;
  return count < 1e6 ? `${(count / 1e3).toFixed(1)} kB` : `${(count / 1e6).toFixed(1)} MB`;
}

// Where each box begins along the line, the two ports included.
function places(count, upright) {
  const size = upright ? HEIGHT : WIDTH, gap = upright ? 46 : GAP;
  const port = upright ? 24 : PORT;
  const made = [[0, port]];
  for (let number = 0; number < count; number++) made.push([port + gap + number * (size + gap), size]);
  made.push([port + gap + count * (size + gap), port]);
  return made;
}

export function drawGraph(place, stages, edges) {
  const room = place.clientWidth;
  const across = places(stages.length, false);
  const upright = across.at(-1)[0] + PORT > room;
  const boxes = upright ? places(stages.length, true) : across;
  const skips = edges.filter((edge) => edge.to - edge.from > 1).length;
  const length = boxes.at(-1)[0] + boxes.at(-1)[1];
  const side = skips ? 26 + 14 * skips : 4;
  const drawing = upright
    ? picture(place, Math.min(room, WIDTH + side + 8), length, "stages")
    : picture(place, length, HEIGHT + side, "stages");
  let skip = 0;
  for (const edge of edges) {
    const far = edge.to - edge.from > 1 ? 20 + 14 * skip++ : 0;
    drawing.append(connection(boxes[edge.from + 1], boxes[edge.to + 1], edge, far, upright));
  }
  drawing.append(port(boxes[0], "in", upright), port(boxes.at(-1), "out", upright));
  stages.forEach((stage, number) => drawing.append(box(stage, boxes[number + 1][0], upright)));
}

function connection(start, end, edge, far, upright) {
  const group = shape("g");
  group.append(shape("title", {}, `${edge.tensors.join("\n")}\n${bytes(edge.bytes)}`));
  const from = start[0] + start[1], to = end[0] - 6, middle = (from + to) / 2;
  if (upright) {
    const x = WIDTH / 2, out = WIDTH + far;
    const path = far ? `M ${x} ${from} v 8 H ${out} V ${to - 12} H ${x} V ${to}` : `M ${x} ${from} V ${to}`;
    group.append(shape("path", { class: "edge", d: path }));
    group.append(shape("path", { class: "tip", d: `M ${x} ${to + 6} l -5 -9 h 10 z` }));
    if (!far) group.append(shape("text", { class: "soft", x: x + 10, y: middle + 4 }, bytes(edge.bytes)));
    return group;
  }
  const y = HEIGHT / 2, out = HEIGHT + far;
  const path = far ? `M ${from} ${y} h 10 V ${out} H ${to - 14} V ${y} H ${to}` : `M ${from} ${y} H ${to}`;
  group.append(shape("path", { class: "edge", d: path }));
  group.append(shape("path", { class: "tip", d: `M ${to + 6} ${y} l -9 -5 v 10 z` }));
  if (!far) group.append(shape("text", { class: "soft middle", x: middle, y: y - 8 }, bytes(edge.bytes)));
  return group;
}

function port([start, size], text, upright) {
  const [x, y] = upright ? [WIDTH / 2, start + 16] : [start + size / 2, HEIGHT / 2 + 4];
  return shape("text", { class: "soft middle", x, y }, text);
}

function box(stage, start, upright) {
  const group = shape("g", { transform: upright ? `translate(0 ${start})` : `translate(${start} 0)` });
  group.dataset.stage = stage.name;
  group.dataset.busy = stage.busy;
  group.append(shape("title", {}, `${stage.name} on ${stage.device}: ${stage.in} in, ${stage.out} out, ${stage.failed} failed`));
  group.append(shape("rect", { class: stage.failed ? "box full" : "box", x: 1, y: 1, width: WIDTH - 2, height: HEIGHT - 2, rx: 9 }));
  group.append(shape("text", { class: "name", x: 12, y: 23 }, clipped(stage.name, 22)));
  const copies = stage.replicas > 1 ? ` × ${stage.replicas}` : "";
  group.append(shape("text", { class: "soft", x: 12, y: 41 }, clipped(stage.device, 20) + copies));
  group.append(shape("rect", { class: "track", x: 12, y: 50, width: 112, height: 10, rx: 5 }));
  group.append(shape("rect", { class: "bar", x: 12, y: 50, width: 112 * stage.busy, height: 10, rx: 5 }));
  group.append(shape("text", { class: "figure", x: WIDTH - 12, y: 60 }, `${Math.round(100 * stage.busy)} %`));
  queue(group, stage);
  group.append(shape("text", { class: "soft", x: 12, y: 101 }, `runs ${short(stage.run_ms[0])}, waits ${short(stage.wait_ms[0])} ms`));
  return group;
}

function queue(group, stage) {
  const slots = Math.min(stage.depth, 8);
  for (let slot = 0; slot < slots; slot++) {
    const taken = slot < stage.queue ? "slot taken" : "slot";
    group.append(shape("rect", { class: taken, x: 12.5 + 13 * slot, y: 70.5, width: 9, height: 9, rx: 2 }));
  }
  group.append(shape("text", { class: "figure", x: WIDTH - 12, y: 80 }, `${stage.queue} queued`));
}
