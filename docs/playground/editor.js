// A text area with line numbers, YAML colors and marked lines.
//
// The text area lies over the colored copy of its text and is as large as the copy, so only the box
// around both scrolls.

// A link can hold a line of a million characters: each pattern takes a time that grows with the line
// alone. A key or a string begins where a value can begin, and a string may have no end.
const TOKENS = [
  ["comment", /(?<=^|\s)#.*/],
  ["key", /(?=[^\s#:"'[\]{},&*!|>%@`-])(?<=^[\s-]*|[[{,]\s*)[^:#"',{}]+?(?=:(?:\s|$))/],
  ["string", /(?<=^|[\s[{,])(?:"(?:\\.|[^"\\])*"?|'(?:''|[^'])*'?)/],
  ["constant", /(?<=[\s[,])(?:true|false|null|-?\d+(?:\.\d+)?)(?=[\s,\]]|$)/],
];
const TOKEN = new RegExp(TOKENS.map(([, pattern]) => `(${pattern.source})`).join("|"), "g");

// Yield the parts of a line with their class; the text between tokens has none.
export function* parts(line) {
  let end = 0;
  for (const match of line.matchAll(TOKEN)) {
    yield [line.slice(end, match.index), ""];
    yield [match[0], TOKENS[match.slice(1).findIndex((group) => group)][0]];
    end = match.index + match[0].length;
  }
  yield [line.slice(end), ""];
}

export class Editor {
  // `place` is an empty element. `onEdit` is called after each edit of the user.
  constructor(place, label, onEdit) {
    this.numbers = element("div", "numbers");
    this.numbers.setAttribute("aria-hidden", "true");
    this.copy = element("pre", "copy");
    this.copy.setAttribute("aria-hidden", "true");
    this.area = element("textarea");
    Object.assign(this.area, { spellcheck: false, wrap: "off", autocomplete: "off" });
    this.area.setAttribute("autocapitalize", "off");
    this.area.setAttribute("aria-label", label);
    const text = element("div", "text");
    text.append(this.copy, this.area);
    place.classList.add("editor");
    place.append(this.numbers, text);
    this.place = place;
    this.marks = new Map();
    this.area.addEventListener("input", () => {
      this.draw();
      onEdit();
    });
    this.area.addEventListener("keydown", (event) => this.indent(event));
    this.draw();
  }

  get value() {
    return this.area.value;
  }

  set value(text) {
    this.area.value = text;
    this.marks = new Map();
    this.draw();
    this.place.scrollTo(0, 0);
  }

  // Mark lines: `marks` maps line numbers, from 1, to the severity, a class of the style sheet.
  mark(marks) {
    this.marks = marks;
    this.draw();
  }

  // Select a line, and scroll to it.
  select(line) {
    const lines = this.value.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
    this.area.focus({ preventScroll: true });
    this.area.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
    this.copy.children[line - 1]?.scrollIntoView({ block: "center", inline: "start" });
  }

  draw() {
    const lines = this.value.split("\n");
    this.copy.replaceChildren(...lines.map((text, index) => this.line(text, index + 1)));
    this.numbers.replaceChildren(
      ...lines.map((_, index) => {
        const number = element("div", this.marks.get(index + 1));
        number.textContent = index + 1;
        return number;
      }),
    );
  }

  line(text, number) {
    const line = element("div", this.marks.get(number));
    for (const [part, name] of parts(text)) {
      line.append(name ? element("span", name, part) : part);
    }
    if (!text) line.append("\u200b");
    return line;
  }

  // Enter keeps the indentation. Tab leaves the editor: keyboards need a way out.
  indent(event) {
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    const before = this.value.slice(0, this.area.selectionStart);
    const current = before.slice(before.lastIndexOf("\n") + 1);
    const spaces = current.match(/^ */)[0] + (/^\s*(?:- )?[^#]*:\s*$/.test(current) ? "  " : "");
    // The only way to insert text that the browser can undo.
    document.execCommand("insertText", false, `\n${spaces}`);
  }
}

export function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}
