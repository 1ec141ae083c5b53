// Tables that are sorted by a click on a heading, and claims that are chosen by their verdict.

for (const heading of document.querySelectorAll(".sortable th")) {
  const button = document.createElement("button");
  button.append(...heading.childNodes);
  heading.append(button);
  button.onclick = () => sortBy(heading);
}

function sortBy(heading) {
  const ascending = heading.getAttribute("aria-sort") !== "ascending";
  for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const body = heading.closest("table").tBodies[0];
  const text = (row) => {
    const cell = row.cells[heading.cellIndex];
    return cell.dataset.order ?? cell.textContent.trim();
  };
  const compared = (one, other) => text(one).localeCompare(text(other), "en", { numeric: true });
  const rows = [...body.rows].sort((one, other) => (ascending ? 1 : -1) * compared(one, other));
  body.append(...rows);
}

// Lines are chosen by the words of those columns that have a few different ones.
for (const table of document.querySelectorAll(".filtered table")) {
  const choices = document.createElement("p");
  table.parentElement.insertBefore(choices, table);
  const rows = [...table.tBodies[0].rows];
  const selects = [];
  for (const [column, heading] of [...table.tHead.rows[0].cells].entries()) {
    const words = [...new Set(rows.map((row) => row.cells[column].textContent))].sort();
    if (words.length < 2 || words.length > 5 || words.some((word) => /^[–\d]/.test(word))) continue;
    const select = document.createElement("select");
    select.add(new Option(`${heading.textContent}: all`, ""));
    for (const word of words) select.add(new Option(word, word));
    select.onchange = () => {
      for (const row of rows) {
        row.hidden = selects.some(([place, { value }]) => value && row.cells[place].textContent !== value);
      }
    };
    selects.push([column, select]);
    choices.append(select, " ");
  }
}

const counts = document.querySelectorAll("button.count");
for (const count of counts) {
  count.onclick = () => {
    const chosen = count.getAttribute("aria-pressed") !== "true";
    for (const other of counts) other.setAttribute("aria-pressed", String(chosen && other === count));
    for (const row of document.querySelectorAll("table.claims > tbody > tr")) {
      row.hidden = chosen && row.dataset.verdict !== count.dataset.verdict;
    }
    if (chosen) document.getElementById("claims").scrollIntoView();
  };
}

// A link to a place inside something folded opens it.
function unfold() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  target.hidden = false;
  for (let place = target; place; place = place.parentElement) {
    if (place.tagName === "DETAILS") place.open = true;
  }
  target.scrollIntoView();
}
addEventListener("hashchange", unfold);
unfold();

// Ages are those of the day on which the page is read.
for (const time of document.querySelectorAll("time")) {
  const days = Math.floor((Date.now() - Date.parse(time.dateTime)) / 86400000);
  const age = new Intl.RelativeTimeFormat("en", { numeric: "auto" }).format(-days, "day");
  time.title = age;
  time.after(` (${age})`);
}

// The list of figures is open beside a wide page, and folded above a narrow one.
const menu = document.querySelector("nav details");
if (menu) {
  const wide = matchMedia("(min-width: 1100px)");
  const place = () => { menu.open = wide.matches; };
  wide.addEventListener("change", place);
  place();
  menu.addEventListener("click", (event) => {
    if (event.target.tagName === "A" && !wide.matches) menu.open = false;
  });
}
