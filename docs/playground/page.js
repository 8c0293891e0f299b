// The playground: editors for a manifest, a policy and nodes, and gpufence's verdict beside them.
//
// Each edit runs gpufence in a worker (worker.js) and writes the state to the fragment of the
// address (link.js). Nothing is sent to a server.

import { Editor } from "./editor.js";
import { Engine } from "./engine.js";
import { decode, encode } from "./link.js";
import { card, marks, problem, summary } from "./results.js";

const DELAY = 200; // Milliseconds after the last edit.
const DEFAULT = "default";
const OWN = "own";

const byId = (id) => document.getElementById(id);
// The file data.json has the samples, the policies by name, and nodes; see playground.py.
const data = await (await fetch(new URL("data.json", import.meta.url))).json();
const engine = new Engine((text) => {
  // An error stays while the rest is loaded.
  if (byId("results").ariaBusy === "true") say(`${text} …`);
});
const manifest = new Editor(byId("manifest-editor"), "Manifest", edited);
const policy = new Editor(byId("policy-editor"), "Policy", () => {
  byId("policy").value = OWN;
  edited();
});
const nodes = new Editor(byId("nodes-editor"), "Nodes", edited);
let timer;
let newest = 0;

option("sample", "", "Own manifest");
for (const sample of data.samples) option("sample", sample.name, sample.title);
for (const name of Object.keys(data.policies)) option("policy", name, name);
option("policy", OWN, "own");

byId("sample").addEventListener("change", () => useSample(byId("sample").value));
byId("policy").addEventListener("change", () => {
  const text = data.policies[byId("policy").value];
  if (text !== undefined) policy.value = text;
  else byId("policy-pane").open = true;
  edited();
});
byId("namespace").addEventListener("input", edited);
byId("discover").addEventListener("click", discover);
byId("sample-nodes").addEventListener("click", () => {
  nodes.value = data.nodes;
  edited();
});
byId("copy-link").addEventListener("click", copyLink);
byId("report").hidden = !data.repository;
byId("report").addEventListener("click", report);
document.querySelector("#playground form").addEventListener("submit", (e) => e.preventDefault());
addEventListener("hashchange", restore);
await restore();

// Show the state of the address, or else the first sample.
async function restore() {
  let state;
  try {
    state = await decode(location.hash);
  } catch (error) {
    const text =
      error instanceof RangeError
        ? "This link is too large: it expands to more than 2 MiB, or 50,000 lines."
        : "This link is damaged: its end may be missing. Ask for it again.";
    newest += 1; // A check that runs is of another text.
    byId("results").ariaBusy = "false";
    byId("objects").replaceChildren();
    say(`${text} Or choose a sample.`, "invalid");
    return;
  }
  if (!state) {
    const name = new URLSearchParams(location.hash.slice(1)).get("sample");
    useSample(data.samples.some((sample) => sample.name === name) ? name : data.samples[0].name);
    return;
  }
  byId("sample").value = "";
  show(state);
}

function useSample(name) {
  const sample = data.samples.find((each) => each.name === name);
  if (!sample) return;
  byId("sample").value = name;
  const withNodes = sample.nodes ? data.nodes : "";
  show({ manifest: sample.manifest, policy: sample.policy ?? DEFAULT, nodes: withNodes });
}

function show(state) {
  const named = data.policies[state.policy];
  manifest.value = String(state.manifest ?? "");
  byId("policy").value = named === undefined ? OWN : state.policy;
  policy.value = named ?? String(state.text ?? "");
  nodes.value = String(state.nodes ?? "");
  byId("namespace").value = String(state.namespace ?? "default");
  byId("policy-pane").open = byId("policy").value !== DEFAULT;
  byId("nodes-pane").open = nodes.value !== "";
  run();
}

function state() {
  const chosen = byId("policy").value;
  const now = { manifest: manifest.value, policy: chosen };
  if (chosen === OWN) now.text = policy.value;
  if (nodes.value) now.nodes = nodes.value;
  if (namespace() !== "default") now.namespace = namespace();
  return now;
}

function namespace() {
  return byId("namespace").value.trim() || "default";
}

async function fragment() {
  const now = state();
  const sample = data.samples.find(
    (each) =>
      each.manifest === now.manifest &&
      (each.policy ?? DEFAULT) === now.policy &&
      (each.nodes ? data.nodes : "") === (now.nodes ?? "") &&
      !now.namespace,
  );
  byId("sample").value = sample?.name ?? "";
  return sample ? `#sample=${sample.name}` : encode(now);
}

function edited() {
  clearTimeout(timer);
  timer = setTimeout(run, DELAY);
}

async function run() {
  clearTimeout(timer);
  const number = ++newest;
  byId("results").ariaBusy = "true";
  if (!engine.ready) say("Loading Python …");
  const text = byId("policy").value === DEFAULT ? undefined : policy.value;
  const check = engine.call("check", manifest.value, text, nodes.value, namespace());
  history.replaceState(null, "", await fragment());
  try {
    const result = await check;
    if (number === newest) render(result);
  } catch (error) {
    if (number === newest) say(error.message, "invalid");
  }
  if (number === newest) byId("results").ariaBusy = "false";
}

function render({ errors, objects }) {
  const editors = { "policy.yaml": policy, "nodes.yaml": nodes, "manifest.yaml": manifest };
  for (const [file, editor] of Object.entries(editors)) {
    const own = errors.filter((error) => error.file === file && error.line);
    editor.mark(new Map(own.map((error) => [error.line, "enforce"])));
  }
  if (errors.length) {
    const file = { "policy.yaml": "The policy is", "nodes.yaml": "The nodes are" };
    say(`${file[errors[0].file] ?? "The input is"} invalid`, "invalid");
  } else {
    const { text, verdict } = summary(objects);
    say(text, verdict);
    manifest.mark(marks(objects));
  }
  const messages = errors.map((error) =>
    problem(error, (line) => {
      byId(error.file.replace(".yaml", "-pane"))?.setAttribute("open", "");
      editors[error.file].select(line);
    }),
  );
  const cards = objects.map((object) => card(object, (line) => manifest.select(line)));
  byId("objects").replaceChildren(...messages, ...cards);
}

async function discover() {
  const { policy: text, errors } = await engine
    .call("discover", nodes.value)
    .catch(({ message }) => ({ errors: [{ file: "", line: 0, text: message }] }));
  byId("nodes-problems").replaceChildren(
    ...errors.map((error) => problem(error, (line) => nodes.select(line))),
  );
  if (!text) return;
  byId("policy").value = OWN;
  policy.value = text;
  byId("policy-pane").open = true;
  run();
}

async function copyLink() {
  history.replaceState(null, "", await fragment());
  try {
    await navigator.clipboard.writeText(location.href);
    byId("copy-link").textContent = "Copied";
  } catch {
    byId("copy-link").textContent = "Copy the address of this page";
  }
  setTimeout(() => (byId("copy-link").textContent = "Copy link"), 3000);
}

// Open the form for a fault, with the address of this case.
async function report() {
  history.replaceState(null, "", await fragment());
  const form = new URL(`${data.repository}/issues/new`);
  const verdict = byId("verdict").textContent;
  form.search = new URLSearchParams({ template: "bug.yaml", manifest: location.href, actual: verdict });
  // Servers accept addresses of some kilobytes.
  if (form.href.length > 7000) form.searchParams.set("manifest", "Paste what Copy link copies.");
  open(form, "_blank", "noopener");
}

function say(text, verdict = "") {
  byId("verdict").textContent = text;
  byId("verdict").className = verdict;
}

function option(select, value, text) {
  byId(select).add(new Option(text, value));
}
