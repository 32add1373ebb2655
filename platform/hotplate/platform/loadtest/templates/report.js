"use strict";
// The values of a moment: under the pointer, where a finger taps, or by the arrow keys.
(() => {
  const series = JSON.parse(document.getElementById("series").textContent);
  const charts = document.getElementById("charts");
  const moment = document.getElementById("moment");
  const plot = charts.querySelector("svg");
  const cursors = charts.querySelectorAll(".cursor");
  const outputs = [...charts.querySelectorAll("output")];
  const perSecond = new Set(["asked", "answered", "refused", "failed"]);
  const steps = series.at.length;
  const rest = moment.textContent + "; point at a moment, tap it, or use the arrow keys.";
  let shown = null;

  const figure = (column, step) => {
    const value = series[column][step];
    if (value === null) return "–";
    if (column === "p95_s") return value < 1 ? `${+(value * 1000).toPrecision(3)} ms` : `${+value.toPrecision(3)} s`;
    if (perSecond.has(column)) return `${+(value / series.step_s).toPrecision(3)}`;
    return `${value}`;
  };
  const clock = (second) => {
    const pad = (number) => String(number).padStart(2, "0");
    const [hours, minutes] = [Math.floor(second / 3600), Math.floor(second / 60) % 60];
    return hours ? `${hours}:${pad(minutes)}:${pad(second % 60)}` : `${minutes}:${pad(second % 60)}`;
  };
  const show = (step) => {
    shown = step === null ? null : Math.min(steps - 1, Math.max(0, step));
    for (const cursor of cursors) {
      cursor.setAttribute("visibility", shown === null ? "hidden" : "visible");
      if (shown === null) continue;
      const at = `${(100 * (shown + 0.5)) / steps}%`;
      cursor.setAttribute("x1", at);
      cursor.setAttribute("x2", at);
    }
    for (const output of outputs) output.textContent = shown === null ? "" : figure(output.dataset.column, shown);
    moment.textContent = shown === null ? rest : `At ${clock(series.at[shown])}`;
  };
  const under = (event) => {
    const box = plot.getBoundingClientRect();
    show(Math.floor((steps * (event.clientX - box.left)) / box.width));
  };
  charts.tabIndex = 0;
  charts.addEventListener("pointermove", under);
  charts.addEventListener("pointerdown", under);
  charts.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") show(null); });
  charts.addEventListener("keydown", (event) => {
    const stride = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (stride !== undefined) show((shown ?? (stride > 0 ? -1 : steps)) + stride);
    else if (event.key === "Home") show(0);
    else if (event.key === "End") show(steps - 1);
    else if (event.key === "Escape") show(null);
    else return;
    event.preventDefault();
  });
  charts.addEventListener("focus", () => moment.setAttribute("aria-live", "polite"));
  show(null);
})();
