// What pages need beside the theme: ages of dates, breaks in long names, the filter, paper.

"use strict";

// Dates say how old they are today, not on the day of the build.
function addAges() {
  const today = Date.now();
  for (const time of document.querySelectorAll("time.age")) {
    const days = Math.floor((today - Date.parse(time.dateTime)) / 86400000);
    if (days < 0) continue;
    const [count, unit] =
      days < 60 ? [days, "day"] : days < 730 ? [Math.floor(days / 30.4), "month"] : [Math.floor(days / 365.25), "year"];
    const age = document.createElement("span");
    age.className = "age";
    age.textContent = days ? `(${count} ${unit}${count === 1 ? "" : "s"} old)` : "(today)";
    time.after(" ", age); // on a line of its own where there is no room beside the date
  }
}

// The filter writes what was chosen into the address, so that it can be linked and gone back to.
function startFilter() {
  const form = document.getElementById("filter");
  if (!form) return;
  const cards = [...document.querySelectorAll("#recipes > .card")];
  const apply = () => {
    const chosen = Object.fromEntries([...new FormData(form)].filter(([, value]) => value));
    const { text = "", ...facets } = chosen;
    let shown = 0;
    for (const card of cards) {
      const fits =
        Object.entries(facets).every(([name, value]) => card.dataset[name] === value) &&
        text.toLowerCase().split(/\s+/).every((word) => card.textContent.toLowerCase().includes(word));
      card.hidden = !fits;
      shown += fits;
    }
    document.getElementById("filter-count").value = shown;
    document.getElementById("nothing").hidden = shown > 0;
    const query = new URLSearchParams(chosen).toString();
    history.replaceState(history.state, "", query ? `?${query}` : location.pathname);
  };
  for (const [name, value] of new URLSearchParams(location.search)) {
    if (form.elements[name]) form.elements[name].value = value;
  }
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(apply));
  apply();
}

// On paper nothing is folded, and nothing is dark.
function preparePaper() {
  let opened = [];
  let colours = null;
  addEventListener("beforeprint", () => {
    if (colours !== null) return; // some browsers say it twice
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((one) => { one.open = true; });
    colours = document.body.getAttribute("data-md-color-scheme");
    document.body.setAttribute("data-md-color-scheme", "default");
  });
  addEventListener("afterprint", () => {
    opened.forEach((one) => { one.open = false; });
    if (colours !== null) document.body.setAttribute("data-md-color-scheme", colours);
    colours = null;
  });
}

// Long names in tables, such as those of files, break after a sign where there is no room.
function breakNames() {
  for (const cell of document.querySelectorAll("article td")) {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    const long = [];
    while (texts.nextNode()) if (/\S{40}/.test(texts.currentNode.data)) long.push(texts.currentNode);
    for (const text of long) {
      const parts = text.data.split(/(?<=[/:_])/);
      text.replaceWith(...parts.flatMap((part) => [part, document.createElement("wbr")]));
    }
  }
}

addAges();
breakNames();
startFilter();
preparePaper();

// Landmarks that the theme leaves without a name, and tables and code that scroll by keyboard.
function helpReaders() {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  for (const nav of document.querySelectorAll(".md-nav--secondary nav")) {
    nav.removeAttribute("aria-label"); // a list within the table of contents is no landmark
    nav.setAttribute("role", "none");
  }
  for (const nav of document.querySelectorAll("nav[data-md-level][aria-labelledby]")) {
    // Where a section has a page of its own, the label that is meant has an icon alone.
    nav.removeAttribute("aria-labelledby");
    nav.setAttribute("aria-label", nav.querySelector(":scope > .md-nav__title")?.textContent.trim() ?? "");
  }
  const help = () => {
    for (const nav of document.querySelectorAll("nav.md-code__nav:not([role])")) nav.setAttribute("role", "none");
    for (const wrap of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) wrap.tabIndex = 0;
    for (const code of document.querySelectorAll("pre > code:not([tabindex])")) {
      // The theme does it where there is a mouse, and takes it away where there is none.
      if (code.scrollWidth > code.clientWidth) code.tabIndex = 0;
    }
  };
  help();
  new MutationObserver(help).observe(document.querySelector("article"), {
    childList: true, subtree: true, attributeFilter: ["tabindex"],
  });
}

helpReaders();
