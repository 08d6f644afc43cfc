// Draws the latency histogram and the timeline.
import { clipped, picture, shape } from "./graph.js";

// Frames that are inside together rarely share one; dark enough for white figures.
const COLOURS = [
  "#2f6fb0", "#b8521f", "#3d8f5f", "#8a5fb0", "#94700f", "#c2456e",
  "#2d8c9e", "#7a6a4f", "#5566c4", "#a34a3a", "#5f7f26", "#9a4f93",
];
const ROW = 46, BAR = 24;

export function drawHistogram(place, latency) {
  const width = Math.max(200, place.clientWidth), height = 130, ground = height - 20;
  const drawing = picture(place, width, height, "histogram of latencies");
  const counts = latency.counts, most = Math.max(1, latency.above, ...counts);
  const step = width / (counts.length + 2);
  counts.forEach((count, number) => drawing.append(bar("bar", number * step, count)));
  if (latency.above) drawing.append(bar("above", (counts.length + 1) * step, latency.above));
  drawing.append(shape("line", { class: "axis", x1: 0, x2: width, y1: ground, y2: ground }));
  drawing.append(shape("text", { class: "soft", x: 0, y: height - 4 }, `${latency.from} ms`));
  drawing.append(shape("text", { class: "soft end", x: width, y: height - 4 }, `${latency.to} ms and above`));

  function bar(kind, x, count) {
    const tall = ((ground - 4) * count) / most;
    return shape("rect", { class: kind, x, y: ground - tall, width: Math.max(1, step - 1), height: tall });
  }
}

export function drawTimeline(place, found) {
  if (!found || !found.events.length) {
    const text = found ? "nothing has run yet" : "load the pipeline with trace=pipeline.Trace(20_000) to see it";
    place.replaceChildren(Object.assign(document.createElement("p"), { className: "soft", textContent: text }));
    return;
  }
  const width = Math.max(240, place.clientWidth), left = width < 600 ? 64 : 130;
  const height = ROW * found.rows.length + 20, scale = (width - left) / (found.span || 1);
  const drawing = picture(place, width, height, "timeline of the last frames");
  found.rows.forEach((name, row) => {
    drawing.append(shape("text", { x: 0, y: middle(row) + 5 }, clipped(name, left < 100 ? 8 : 17)));
    drawing.append(shape("rect", { class: "track", x: left, y: middle(row) - BAR / 2, width: width - left, height: BAR }));
  });
  const waits = found.rows.map(() => []);
  for (const event of found.events.sort((one, other) => one[3] - other[3])) drawing.append(bar(event));
  drawing.append(shape("text", { class: "soft", x: left, y: height - 4 }, "0 ms"));
  drawing.append(shape("text", { class: "soft end", x: width, y: height - 4 }, `${found.span.toFixed(2)} ms`));

  function middle(row) {
    return row * ROW + ROW - BAR / 2 - 4;
  }

  function bar([row, frame, kind, start, duration]) {
    const x = left + start * scale, wide = Math.max(0.5, duration * scale), fill = COLOURS[frame % COLOURS.length];
    const group = shape("g", { class: "event" });
    group.append(shape("title", {}, `frame ${frame}: ${kind} ${duration} ms`));
    if (kind === "queue") {
      group.append(shape("rect", { x, y: middle(row) - BAR / 2 - 4 - 3 * lane(row, start, duration), width: wide, height: 2, fill }));
      return group;
    }
    const look = { x, y: middle(row) - BAR / 2, width: wide, height: BAR, fill };
    if (kind === "copy") look["fill-opacity"] = 0.4;
    if (kind === "failed") look.class = "failing";
    group.append(shape("rect", look));
    if (kind === "run" && wide > 9 * String(frame).length + 4) {
      group.append(shape("text", { class: "inside", x: x + wide / 2, y: middle(row) + 5 }, frame));
    }
    return group;
  }

  // Frames that wait at the same time are drawn one above the other.
  function lane(row, start, duration) {
    const ends = waits[row];
    let free = ends.findIndex((end) => end <= start);
    if (free < 0) free = ends.length;
    ends[free] = start + duration;
    return Math.min(free, 4);
  }
}

const CURVES = { frames_per_s: "frames/s", latency_ms: "ms latency, median", clock_mhz: "MHz clock", temperature_c: "°C" };

// A curve for each value that the machine tells, from zero to its largest.
export function drawHistory(place, found) {
  const known = Object.entries(found.curves).filter(([, values]) => values.some((value) => value !== null));
  place.replaceChildren(...known.map(([name]) => {
    const box = document.createElement("div");
    box.dataset.name = name;
    return box;
  }));
  known.forEach(([name, values], number) => {
    const box = place.children[number], width = Math.max(120, box.clientWidth), height = 72, top = 20, ground = height - 2;
    const drawing = picture(box, width, height, CURVES[name]);
    const most = Math.max(...values.filter((value) => value !== null)) || 1, span = -found.seconds[0] || 1;
    const points = values.map((value, at) => [width * (1 + found.seconds[at] / span), value])
      .filter(([, value]) => value !== null).map(([x, value]) => `${x.toFixed(1)},${(ground - ((ground - top) * value) / most).toFixed(1)}`);
    const newest = values.findLast((value) => value !== null);
    drawing.append(shape("line", { class: "axis", x1: 0, x2: width, y1: ground, y2: ground }));
    drawing.append(shape("polyline", { class: "curve", points: points.join(" ") }));
    drawing.append(shape("text", { x: 0, y: 13 }, `${Number(newest.toPrecision(3))} ${CURVES[name]}`));
    drawing.append(shape("text", { class: "soft end", x: width, y: 13 }, `${Math.round(span)} s`));
  });
}
