// Sorts and searches the table of students. What is chosen stands in the page's address, behind "#", so that links can choose, too.
"use strict";
{
  const table = document.getElementById("students"), body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const tools = document.getElementById("tools"), search = tools.querySelector("input"), count = tools.querySelector("output");
  const words = new Intl.Collator(undefined, { numeric: true });

  const chosen = () => new URLSearchParams(location.hash.slice(1));
  const content = (row, column) => row.cells[column].textContent.trim();

  function choose(name, value) {
    const now = chosen();
    value ? now.set(name, value) : now.delete(name);
    history.replaceState(null, "", "#" + now);
    show();
  }

  function compare(one, other, column) { // empty cells are last, words behind numbers
    const [a, b] = [content(one, column), content(other, column)], [x, y] = [Number(a || NaN), Number(b || NaN)];
    if (!a || !b) return { last: !b - !a };
    if (isNaN(x) || isNaN(y)) return isNaN(x) && isNaN(y) ? words.compare(a, b) : { last: isNaN(x) - isNaN(y) };
    return x - y;
  }

  function show() {
    const now = chosen(), wanted = (now.get("search") || "").toLowerCase(), [sort, down] = (now.get("sort") || "0").split(" ");
    const column = sort in heads ? Number(sort) : 0, only = Number(now.get("only")), said = now.get("said");
    const shown = (row) =>
      content(row, 0).toLowerCase().includes(wanted) && (!only || content(row, only)) && (!said || (row.dataset.said || "").split(" ").includes(said));
    rows.sort((one, other) => {
      const order = compare(one, other, column);
      return order.last ?? ((down ? -order : order) || one.index - other.index);
    });
    for (const row of rows) row.hidden = !shown(row);
    body.append(...rows);
    heads.forEach((head, number) => head.setAttribute("aria-sort", number !== column ? "none" : down ? "descending" : "ascending"));
    for (const link of tools.querySelectorAll("a")) link.classList.toggle("chosen", link.hash === (only ? "#only=" + only : said ? "#said=" + said : ""));
    search.value = now.get("search") || "";
    count.textContent = rows.filter((row) => !row.hidden).length + " of " + rows.length;
  }

  rows.forEach((row, number) => (row.index = number));
  heads.forEach((head, number) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.onclick = () => choose("sort", head.ariaSort === "ascending" ? number + " down" : number + "");
  });
  search.oninput = () => choose("search", search.value);
  addEventListener("hashchange", () => {
    show();
    if (chosen().has("said")) table.scrollIntoView();
  });
  for (const hidden of document.querySelectorAll(".scripted")) hidden.hidden = false;
  show();
}
