const ERRORS = 1; // of Vega's levels of messages

// Draws the chart of each figure when it comes into view, in place of its picture, which is printed.
const drawn = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((entry) => entry.isIntersecting)) {
    drawn.unobserve(entry.target);
    draw(entry.target);
  }
}, { rootMargin: "400px" });

async function draw(figure) {
  const data = figure.querySelector("script");
  const chart = Object.assign(document.createElement("div"), { className: "chart" });
  data.before(chart);
  try {
    await vegaEmbed(chart, JSON.parse(data.textContent), { actions: false, logLevel: ERRORS });
  } catch (error) {
    // The picture stays.
    chart.remove();
    console.error(error);
    return;
  }
  const button = Object.assign(document.createElement("button"), { className: "choice" });
  const show = (live) => {
    figure.classList.toggle("live", live);
    chart.hidden = !live;
    button.textContent = live ? "static picture" : "interactive chart";
  };
  button.onclick = () => show(!figure.classList.contains("live"));
  figure.querySelector(".image").before(button);
  show(true);
}

document.querySelectorAll('figure script[type="application/json"]').forEach((data) => {
  drawn.observe(data.closest("figure"));
});
