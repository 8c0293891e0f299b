// The verdicts as elements. Texts come from manifests: they are set as text only, never as HTML.

import { element } from "./editor.js";

const SENTENCES = {
  invalid: "Invalid: gpufence cannot read this object",
  denied: "Denied",
  unknown: "Not judged yet: the webhook judges the Pods when they are created",
  mutated: "Allowed, with changes",
  allowed: "Allowed, without changes",
  skipped: "Skipped: not an object with Pods",
};
const MOST_SEVERE_FIRST = ["invalid", "denied", "unknown", "mutated", "allowed", "skipped"];

// Return the verdict on all objects in a few words, and the most severe verdict.
export function summary(objects) {
  const count = (verdict) => objects.filter((object) => object.verdict === verdict).length;
  const present = MOST_SEVERE_FIRST.filter(count);
  const [verdict] = present;
  const findings = objects.flatMap((object) => object.findings);
  const warnings = findings.filter((finding) => finding.action === "warn").length;
  const more = warnings ? `; ${warnings} ${warnings === 1 ? "warning" : "warnings"}` : "";
  if (objects.length === 1) return { text: SENTENCES[verdict] + more, verdict };
  const counts = present.map((each) => `${count(each)} ${each}`).join(", ");
  return { text: `${objects.length} objects: ${counts}${more}`, verdict };
}

// Return the lines of the manifest to mark, with the severity of each.
export function marks(objects) {
  const lines = new Map();
  for (const object of objects) {
    for (const { line, action } of object.findings) {
      if (line && lines.get(line) !== "enforce") lines.set(line, action);
    }
    if (object.verdict === "invalid" && object.line) lines.set(object.line, "enforce");
  }
  return lines;
}

// Return what is known of one object. `goTo` shows a line of the manifest.
export function card(object, goTo) {
  const made = element("section", "object");
  const heading = element("h2");
  heading.append(element("span", `verdict ${object.verdict}`, object.verdict), ` ${object.title} `);
  if (object.line) heading.append(lineButton(object.line, goTo));
  made.append(heading);
  if (object.error) made.append(element("p", "error", object.error));
  if (object.note) made.append(element("p", "note", object.note));
  for (const text of object.missing) made.append(element("p", "missing", `Note: ${text}.`));
  made.append(...object.findings.map((finding) => findingItem(finding, goTo)));
  const changed = object.changes.length > 0;
  if (changed) made.append(details("What gpufence changes", difference(object.changes), true));
  for (const { title, lines } of object.reasons) {
    made.append(details(title, explanation(lines), title.startsWith("Scheduling")));
  }
  return made;
}

// Return a message about an editor's text.
export function problem({ file, line, text }, goTo) {
  const made = element("p", "error");
  if (file) made.append(`${file} `);
  if (line) made.append(lineButton(line, goTo), " ");
  made.append(text);
  return made;
}

function findingItem(finding, goTo) {
  const made = element("div", `finding ${finding.action}`);
  const first = element("p");
  const rule = element("a", "rule", finding.rule);
  rule.href = `rules/${encodeURIComponent(finding.rule)}.html`;
  first.append(element("span", "action", finding.action), " ", rule, " ");
  if (finding.line) first.append(lineButton(finding.line, goTo), " ");
  first.append(element("code", "", finding.path));
  made.append(first, element("p", "", finding.message));
  if (finding.remediation) made.append(element("p", "remediation", finding.remediation));
  return made;
}

function lineButton(line, goTo) {
  const made = element("button", "line", `line ${line}`);
  made.type = "button";
  made.addEventListener("click", () => goTo(line));
  return made;
}

function details(title, content, open) {
  const made = element("details");
  made.open = open;
  made.append(element("summary", "", title), content);
  return made;
}

function difference(lines) {
  const made = element("pre", "difference");
  for (const [mark, text] of lines) {
    const name = { "+": "added", "-": "removed", "@": "aside" }[mark];
    made.append(element("div", name, mark === "@" ? "@@" : mark + text));
  }
  return made;
}

function explanation(lines) {
  const made = element("div", "explanation");
  for (const { indent, spans, wraps } of lines) {
    const line = element(wraps ? "p" : "pre");
    line.style.marginInlineStart = `${indent / 2}em`;
    line.append(...spans.map(([text, role]) => element("span", role, text)));
    made.append(line);
  }
  return made;
}
