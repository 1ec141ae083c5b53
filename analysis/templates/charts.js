// Draws the chart of each figure when it comes into view, in place of its picture, which is printed.

const ERRORS = 1; // of Vega's levels of messages
const fields = [...document.querySelectorAll(".filters select")];
const specifications = new Map();

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((entry) => entry.isIntersecting)) {
    seen.unobserve(entry.target);
    start(entry.target);
  }
}, { rootMargin: "400px" });

for (const data of document.querySelectorAll("figure script")) {
  seen.observe(data.closest("figure"));
}

async function start(figure) {
  const data = figure.querySelector("script");
  specifications.set(figure, await unpacked(data.textContent));
  const chart = Object.assign(document.createElement("div"), { className: "chart" });
  data.before(chart);
  const button = document.createElement("button");
  const show = (live) => {
    figure.classList.toggle("live", live);
    chart.hidden = !live;
    button.textContent = live ? "static picture" : "interactive chart";
  };
  try {
    await draw(figure);
  } catch (error) {
    chart.remove();
    console.error(error);
    return;
  }
  button.onclick = () => show(!figure.classList.contains("live"));
  figure.querySelector(".links").append(button);
  show(true);
}

// A chart is in the page as JSON, compressed.
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

async function draw(figure) {
  const chart = figure.querySelector(".chart");
  const specification = filtered(specifications.get(figure));
  if (!specification.concat.length) {
    chart.textContent = "Nothing in this figure is of that data set and adjacency.";
    return;
  }
  specification.columns = Math.min(specification.columns, Math.floor(figure.clientWidth / specification.usermeta.panel) || 1);
  const options = { actions: false, logLevel: ERRORS, renderer: "svg" };
  const { view } = await vegaEmbed(chart, specification, options);
  view.addEventListener("click", (event, item) => tell(figure, item?.datum));
}

// The records of the chosen data set and adjacency; those of none, such as levels, stay.
function filtered(specification) {
  const chosen = fields.filter((field) => field.value);
  const matches = (record) => chosen.every((field) =>
    record[field.name] === undefined || record[field.name] === field.value);
  const panels = [];
  for (const panel of specification.concat) {
    const values = panel.data.values.filter(matches);
    const meant = values.some((record) => chosen.some((field) => record[field.name] === field.value));
    if (meant || values.length === panel.data.values.length) panels.push({ ...panel, data: { values } });
  }
  // The legend belongs to the first panel.
  const [legend] = specification.concat[0].layer;
  if (legend.params && panels.length && !panels[0].layer.includes(legend)) {
    panels[0].layer = [legend, ...panels[0].layer];
  }
  return { ...specification, concat: panels };
}

// Below a chart: where the rows of a mark are, and how they are made again.
function tell(figure, record) {
  if (!record?.cell) return;
  const note = figure.querySelector(".note") ?? Object.assign(document.createElement("p"), { className: "note" });
  const rows = Object.assign(document.createElement("a"), {
    href: `../../cells/${record.cell.slice(0, 2)}/${record.cell}.parquet`,
    textContent: `cell ${record.cell.slice(0, 12)}`,
  });
  const facts = [record.panel, record.hue, record.place].filter(Boolean).join(", ");
  const again = Object.assign(document.createElement("code"), { textContent: figure.dataset.command });
  note.replaceChildren(`${facts}: ${record.value}, ${record.seeds} seeds. Rows: `, rows, ". Again: ", again);
  figure.querySelector(".chart").after(note);
}

async function redraw() {
  for (const figure of specifications.keys()) await draw(figure);
}
for (const field of fields) field.onchange = redraw;
matchMedia("(min-width: 1100px)").addEventListener("change", redraw);
matchMedia("(min-width: 641px)").addEventListener("change", redraw);
