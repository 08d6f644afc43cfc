// Takes the updates and brings them to their places.  Text comes from models, so it is only ever set as text.
import { drawNodes, drawStreams } from "./application.js";
import { drawGraph, element } from "./graph.js";
import { drawHistogram, drawHistory, drawTimeline } from "./charts.js";

const at = (id) => document.getElementById(id);

const short = (value) => (value === null ? "–" : Number(value.toPrecision(4)).toString());
const decimals = (value) => value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);

function say(text, kind) {
  at("state").textContent = text;
  at("state").dataset.state = kind;
}

function frames(found) {
  const rows = [["submitted", found.submitted], ["in flight", found.in_flight], ["waiting at the entrance", found.waiting]];
  rows.push(...Object.entries(found.ends));
  at("frames").replaceChildren(...rows.map(([name, count]) => {
    const row = element("tr");
    row.append(element("th", name, { scope: "row" }), element("td", count));
    row.dataset.name = name;
    return row;
  }));
}

function tensor(found, role) {
  const box = element("div", undefined, { className: "tensor" });
  box.append(element("p", `${role} ${found.name}: ${found.dtype} [${found.shape.join(", ")}]`));
  if (found.picture) box.append(element("img", undefined, { src: found.picture, alt: `${role} ${found.name}` }));
  if (found.best) {
    const table = element("table");
    for (const [index, score] of found.best) {
      const row = element("tr");
      row.append(element("th", index), element("td", short(score)));
      table.append(row);
    }
    box.append(table);
    if (found.rows.length > 1) box.append(element("p", `largest in each row: ${found.rows.join(" ")}`));
  }
  if (!found.picture && found.low !== undefined) {
    box.append(element("p", `${short(found.low)} to ${short(found.high)}, mean ${short(found.mean)}`, { className: "soft" }));
  }
  return box;
}

function frame(found) {
  at("number").textContent = found ? found.number : "";
  if (!found) return at("frame").replaceChildren(element("p", "none yet", { className: "soft" }));
  const parts = [];
  if (found.result) {
    const box = element("div", undefined, { className: "result" });
    if (found.result.picture) box.append(element("img", undefined, { src: found.result.picture, alt: found.result.text }));
    if (found.result.text) box.append(element("p", found.result.text));
    parts.push(box);
  }
  parts.push(...found.inputs.map((each) => tensor(each, "input")), ...found.outputs.map((each) => tensor(each, "output")));
  if (found.error) parts.push(element("p", found.error, { className: "error" }));
  at("frame").replaceChildren(...parts);
}

function show(update) {
  if (!update) return say("waiting for a stream", "waiting");
  document.title = `${update.model} · soc-pipeline`;
  at("model").textContent = update.model || "soc-pipeline";
  say(update.state, update.state.split(":")[0]);
  at("rate").textContent = decimals(update.frames.per_s);
  at("median").textContent = decimals(update.latency.ms[0]);
  document.body.dataset.view = update.streams ? "application" : "pipeline";
  if (update.streams) {
    drawStreams(at("streams"), update.streams);
    return drawNodes(at("nodes"), update.nodes, update.edges);
  }
  const [p50, p95, p99] = update.latency.ms.map(decimals);
  at("percentiles").textContent = `p50 ${p50} ms, p95 ${p95} ms, p99 ${p99} ms`;
  frames(update.frames);
  drawGraph(at("graph"), update.stages, update.edges);
  drawHistogram(at("histogram"), update.latency);
  drawTimeline(at("timeline"), update.timeline);
  drawHistory(at("history"), update.history);
  frame(update.frame);
}

let last = null;
const events = new EventSource("events");
events.onmessage = (event) => show((last = JSON.parse(event.data)));
events.onerror = () => say(last ? "no connection; this is what came last" : "no connection", "lost");
addEventListener("resize", () => last && show(last));
