// On narrow screens, the style sheet stacks the cells of a row: each cell then needs the name of its
// column. Two columns need no names.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.docutils")) {
    const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    if (names.length < 3) continue;
    table.classList.toggle("many-columns", names.length > 3);
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, index) => (cell.dataset.column = names[index] ?? ""));
    }
  }
});
