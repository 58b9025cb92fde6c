// Show values of the curves at the pointer or by arrow keys; hide lines by a click on a name.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

const number = (value) =>
  value.toLocaleString("en", { maximumSignificantDigits: Math.abs(value) < 1e6 ? 5 : 15 });

// Map values to positions in the picture.
function places({ x, y, log, box }) {
  const [left, right, bottom, top] = box;
  const turn = log ? Math.log : (value) => value;
  const [low, high] = y.map(turn);
  return {
    x: (value) => left + ((value - x[0]) / (x[1] - x[0])) * (right - left),
    y: (value) => bottom + ((turn(value) - low) / (high - low)) * (top - bottom),
    at: (place) => x[0] + ((place - left) / (right - left)) * (x[1] - x[0]),
  };
}

function nearest(points, value) {
  let low = 0;
  let high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < value) low = middle;
    else high = middle;
  }
  return Math.abs(points[low][0] - value) <= Math.abs(points[high][0] - value) ? low : high;
}

class Chart {
  constructor(figure) {
    this.svg = figure.querySelector("svg");
    this.scale = JSON.parse(this.svg.dataset.scale);
    this.to = places(this.scale);
    this.read = figure.querySelector(".read");
    const names = [...figure.querySelectorAll(".legend li")];
    this.lines = [...this.svg.querySelectorAll(".line")].map((group, place) =>
      this.line(group, names[place]),
    );
    this.rule = this.svg.appendChild(document.createElementNS(SVG, "path"));
    this.rule.setAttribute("class", "rule");
    this.listen();
  }

  line(group, name) {
    const line = { group, points: JSON.parse(group.dataset.points), on: true };
    line.dot = group.appendChild(document.createElementNS(SVG, "circle"));
    line.dot.setAttribute("class", "dot");
    line.dot.setAttribute("r", "4");
    line.value = name.appendChild(document.createElement("b"));
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    button.append(...name.querySelectorAll("svg, span"));
    name.prepend(button);
    button.addEventListener("click", () => {
      line.on = !line.on;
      button.setAttribute("aria-pressed", String(line.on));
      group.classList.toggle("off", !line.on);
      this.clear();
    });
    line.label = button.textContent.trim();
    return line;
  }

  listen() {
    this.svg.tabIndex = 0;
    this.svg.setAttribute("role", "slider");
    this.svg.setAttribute("aria-valuetext", "no value chosen");
    this.svg.setAttribute("aria-valuemin", this.scale.x[0]);
    this.svg.setAttribute("aria-valuemax", this.scale.x[1]);
    this.svg.setAttribute("aria-valuenow", this.scale.x[0]);
    for (const kind of ["pointermove", "pointerdown"])
      this.svg.addEventListener(kind, (event) => {
        const frame = this.svg.getBoundingClientRect();
        const width = this.svg.viewBox.baseVal.width;
        this.show(this.to.at(((event.clientX - frame.left) / frame.width) * width));
      });
    this.svg.addEventListener("pointerleave", (event) => {
      if (event.pointerType !== "touch") this.clear(); // lifting a finger fires this event, too
    });
    this.svg.addEventListener("keydown", (event) => this.press(event));
    this.svg.addEventListener("blur", () => this.clear());
  }

  press(event) {
    const line = this.lines.find((one) => one.on);
    const last = line ? line.points.length - 1 : -1;
    const here = line && this.chosen !== undefined ? nearest(line.points, this.chosen) : -1;
    const to = {
      ArrowRight: here + 1, ArrowUp: here + 1, ArrowLeft: here - 1, ArrowDown: here - 1,
      PageUp: here + 10, PageDown: here - 10, Home: 0, End: last,
    }[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.show(line.points[Math.min(last, Math.max(0, to))][0]);
  }

  show(value) {
    const on = this.lines.filter((line) => line.on);
    if (!on.length) return;
    const near = on.map((line) => line.points[nearest(line.points, value)]);
    const gap = (point) => Math.abs(point[0] - value);
    const at = near.reduce((best, one) => (gap(one) < gap(best) ? one : best))[0];
    this.clear();
    this.chosen = at;
    const [, , bottom, top] = this.scale.box;
    this.rule.setAttribute("d", `M${this.to.x(at)} ${bottom}V${top}`);
    const place =
      this.scale.unit === "step" ? `step ${number(at)}` : `${number(at)} ${this.scale.unit}`;
    const said = on.map((line) => {
      const [x, y] = line.points[nearest(line.points, at)];
      line.dot.setAttribute("cx", this.to.x(x));
      line.dot.setAttribute("cy", this.to.y(y));
      line.dot.classList.add("shown");
      line.value.textContent = number(y);
      return `${line.label} ${number(y)}`;
    });
    this.read.textContent = place;
    this.svg.setAttribute("aria-valuetext", `${place}: ${said.join(", ")}`);
    this.svg.setAttribute("aria-valuenow", String(at));
  }

  clear() {
    this.chosen = undefined;
    this.rule.removeAttribute("d");
    this.read.textContent = "";
    for (const line of this.lines) {
      line.dot.classList.remove("shown");
      line.value.textContent = "";
    }
  }
}

for (const figure of document.querySelectorAll("figure.chart")) new Chart(figure);
