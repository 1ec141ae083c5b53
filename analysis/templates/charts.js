// Draws the chart of each figure when it comes into view, in place of its picture, which is printed.

// Charts in Vega-Lite: what all charts of a kind have in common. A layer shows the records that have
// its field.
const has = (field) => [{ filter: `isValid(datum['${field}'])` }];
const KINDS = {
  lines: {
    width: 260,
    height: 190,
    encoding: {
      x: { field: "at", type: "quantitative" },
      y: { field: "value", type: "quantitative", axis: { tickCount: 5 } },
      color: { field: "hue", type: "nominal" },
    },
    layer: [
      {
        transform: has("level"),
        mark: { type: "rule", clip: true },
        encoding: { x: null, y: { field: "level" }, strokeDash: { field: "hue", type: "nominal" } },
      },
      {
        transform: has("from"),
        mark: { type: "area", opacity: 0.16, clip: true },
        encoding: { y: { field: "from" }, y2: { field: "to" }, detail: { field: "curve" } },
      },
      {
        transform: has("at"),
        mark: { type: "line", clip: true },
        encoding: { strokeDash: { field: "hue", type: "nominal" }, detail: { field: "curve" } },
      },
      { transform: has("at"), mark: { type: "point", filled: true, opacity: 1, clip: true }, encoding: {} },
    ],
  },
  forest: {
    width: 364,
    height: { step: 20 },
    encoding: {
      x: { field: "value", type: "quantitative" },
      y: { field: "at", type: "ordinal", title: null },
      color: { field: "hue", type: "nominal" },
    },
    layer: [
      { transform: has("stacked"), mark: { type: "bar" }, encoding: { x: { field: "stacked", aggregate: "sum" } } },
      { transform: has("level"), mark: { type: "rule" }, encoding: { x: { field: "level" }, y: null } },
      { transform: has("low"), mark: { type: "rule" }, encoding: { x: { field: "low" }, x2: { field: "high" } } },
      { transform: has("mark"), mark: { type: "point", filled: true, opacity: 1 }, encoding: {} },
      {
        transform: has("reported"),
        mark: { type: "point", shape: "diamond", size: 60 },
        encoding: { color: { value: "black" }, x: { field: "reported" } },
      },
    ],
  },
  heatmap: {
    width: { step: 46 },
    height: { step: 23 },
    encoding: {
      x: { field: "at", type: "ordinal" },
      y: { field: "row", type: "ordinal" },
      color: { field: "value", type: "quantitative", legend: { format: ".3~g" } },
    },
    layer: [
      { transform: has("value"), mark: { type: "rect" }, encoding: {} },
      {
        transform: has("text"),
        mark: { type: "text", fontSize: 9 },
        encoding: { text: { field: "text" }, color: { value: "black" } },
      },
    ],
  },
};
const ENTRY = 170; // pixels of an entry of the legend
// Pixels of a panel with what is beside it: a page has as many as fit.
const ROOM = { lines: 340, forest: 560, heatmap: 340 };
// What takes the place of bands.
const BARS = { type: "rule", opacity: 0.8, clip: true };
// Dashes by the words that matplotlib has for them.
const SOLID = [1, 0];
const DASHES = {
  "-": SOLID, solid: SOLID, "": SOLID, " ": SOLID, None: SOLID, none: SOLID,
  "--": [6, 3], dashed: [6, 3], ":": [2, 2], dotted: [2, 2], "-.": [6, 2, 2, 2], dashdot: [6, 2, 2, 2],
};
// Color schemes of Vega by the names that matplotlib has for them.
const SCHEMES = { YlGnBu: "yellowgreenblue", YlOrRd: "yelloworangered", PuOr: "purpleorange" };
const INTERVALS = {
  t95: "95 % interval",
  se3: "three standard errors",
  deviation: "standard deviation",
  bootstrap95: "95 % bootstrap interval",
  none: "interval",
};

// Title and scale of an axis of numbers; logarithms have no zero.
function quantity(title, type, scale) {
  const zero = type === "linear" ? { zero: false } : {};
  return { title: title || null, scale: { nice: false, type, ...zero, ...scale } };
}

// Axes and scales of a view, by kind.
const FILL = {
  lines({ encoding: { x, y }, layer }, panel) {
    const places = panel.values.map((record) => record.at).filter((at) => at !== undefined);
    x.axis = { labelOverlap: true, values: [...new Set(places)].sort((a, b) => a - b) };
    if (panel.names.length) x.axis.labelExpr = `${JSON.stringify(panel.names)}[datum.value]`;
    const type = panel.x_scale === "linear" ? "linear" : "log";
    Object.assign(x, quantity(panel.x_label, type, { reverse: panel.x_reversed, padding: 8 }));
    const scale = { reverse: panel.y_reversed, domain: panel.domain };
    Object.assign(y, quantity(panel.y_label, panel.log ? "log" : "linear", scale));
    if (panel.bands === "bars") layer[1].mark = BARS;
  },
  forest({ encoding: { x, y }, layer }, panel) {
    let scale = ["linear", { zero: panel.y_zero || panel.stacked.length > 0 }];
    if (panel.log) scale = ["log", {}];
    if (panel.y_scale === "symlog") scale = ["symlog", { constant: panel.linear_below }];
    Object.assign(x, quantity(panel.x_label, ...scale));
    const [names, places] = [panel.names, panel.places].map((list) => JSON.stringify(list));
    const axis = { labelExpr: `${names}[indexof(${places}, datum.value)]` };
    Object.assign(y, { sort: panel.places, scale: { domain: panel.places }, axis });
    if (panel.dodge) for (const part of layer.slice(2, 4)) part.encoding.yOffset = { field: "hue" };
  },
  heatmap({ encoding: { x, y, color } }, panel) {
    Object.assign(x, { sort: panel.columns, title: panel.x_label || null });
    Object.assign(y, { sort: panel.rows, title: panel.y_label || null });
    const name = panel.color_map.replace(/_r$/, "");
    color.title = panel.color_label || null;
    color.scale = {
      type: panel.log ? "log" : "linear",
      scheme: SCHEMES[name] ?? name,
      reverse: name !== panel.color_map,
      domain: panel.domain,
      clamp: true,
    };
  },
};

// What a layer reads of a row, by kind, besides its place.
const MARKS = {
  lines({ style, curve, piece, shown_low: from, shown_high: to }) {
    const name = { curve: `${style} ${curve} ${piece}` };
    return from < to ? { ...name, from, to } : name;
  },
  forest: ({ stacked, value }) => stacked === undefined ? { mark: value } : {},
  heatmap: () => ({}),
};

function panelView(panel, kind) {
  const values = panel.values.map((row) =>
    ({ ...row, ...("at" in row ? MARKS[kind](row) : { level: row.value }) }));
  const view = { ...structuredClone(KINDS[kind]), title: panel.title, data: { values } };
  FILL[kind](view, panel);
  for (const places of panel.references) {
    for (const [side, datum] of Object.entries(places)) {
      const encoding = { color: { value: "grey" }, [side]: { datum } };
      view.layer.push({ data: { values: [{}] }, mark: { type: "rule", strokeDash: [2, 2] }, encoding });
    }
  }
  const titles = {
    panel: "panel",
    dataset: "data set",
    hue: panel.hue,
    style: panel.style || "style",
    place: kind === "lines" ? panel.x : panel.row,
    value: panel.value,
    interval: INTERVALS[panel.interval],
    seeds: "seeds",
    epsilon: "ε declared",
    epsilon_spent: "ε spent",
    adjacency: "adjacency",
  };
  const shown = new Set(values.flatMap(Object.keys));
  view.encoding.tooltip = Object.entries(titles).filter(([field]) => shown.has(field))
    .map(([field, title]) => ({ field, title: title.replaceAll("_", " "), type: "nominal" }));
  return view;
}

// Gives hues their colors. A click in the legend leaves one hue; with the shift key several.
function addLegend(views, { hues, columns }) {
  const ranges = {
    color: hues.map(({ color }) => color),
    strokeDash: hues.map(({ dash }) => typeof dash === "string" ? DASHES[dash] : dash.map((length) => 2 * length)),
  };
  const domain = hues.map(({ label }) => label);
  const across = Math.max(Math.floor(columns * KINDS.lines.width / ENTRY), 1);
  const legend = { orient: "top", title: null, labelLimit: 400, columns: across };
  for (const view of views) {
    view.transform = [{ filter: { param: "shown" } }];
    for (const { encoding } of [view, ...view.layer]) {
      for (const [channel, range] of Object.entries(ranges)) {
        if (encoding[channel]?.field === "hue") Object.assign(encoding[channel], { scale: { domain, range }, legend });
      }
    }
  }
  // Only as the first layer of the first view does the legend always answer to clicks.
  views[0].layer.unshift({
    data: { values: [] },
    mark: "point",
    encoding: {},
    params: [{ name: "shown", select: { type: "point", fields: ["hue"] }, bind: "legend" }],
  });
}

// The Vega-Lite specification of a chart, one view a panel.
function specify(chart) {
  const views = chart.panels.map((panel) => panelView(panel, chart.kind));
  const isMap = chart.kind === "heatmap";
  if (!isMap) addLegend(views, chart);
  return {
    $schema: "https://vega.github.io/schema/vega-lite/v6.json",
    config: { view: { stroke: null }, axis: { labelLimit: 220 } },
    usermeta: { panel: ROOM[chart.kind] },
    columns: chart.columns,
    concat: views,
    resolve: { scale: { color: isMap ? "independent" : "shared" } },
  };
}

// The page

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
  specifications.set(figure, specify(await unpacked(data.textContent)));
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
