"use strict";
// The page reads without this: it only hides what the filters leave out.
(() => {
  const form = document.getElementById("filters");
  if (form) {
    const items = [...document.querySelectorAll("#found > li")];
    const texts = items.map((item) => item.textContent.toLowerCase());
    const count = document.getElementById("count");
    const total = count.textContent;
    const keys = ["rule", "namespace", "action"];
    const apply = () => {
      const words = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      items.forEach((item, index) => {
        const fits =
          keys.every((key) => ["", item.dataset[key]].includes(form.elements[key].value)) &&
          words.every((word) => texts[index].includes(word));
        item.hidden = !fits;
        shown += fits;
      });
      count.textContent = shown === items.length ? total : `${shown.toLocaleString("en")} of ${total}`;
    };
    form.addEventListener("input", apply);
    form.addEventListener("change", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    // The values are back only after the event.
    form.addEventListener("reset", () => setTimeout(apply));
    form.hidden = false;
    apply();
  }
  for (const filter of document.querySelectorAll("form.nodes-filter")) {
    const nodes = [...filter.parentElement.querySelectorAll("li.node")];
    const apply = () => {
      const wanted = filter.elements.nodes.value;
      const shown = nodes.filter((node) => {
        node.hidden = wanted !== "" && !node.dataset.is.split(" ").includes(wanted);
        return !node.hidden;
      });
      filter.querySelector("output").textContent = `${shown.length} of ${nodes.length}`;
    };
    filter.addEventListener("change", apply);
    filter.addEventListener("submit", (event) => event.preventDefault());
    filter.hidden = false;
    apply();
  }
  const details = document.querySelectorAll("details");
  addEventListener("beforeprint", () => details.forEach((each) => (each.open = true)));
})();
