// The theme fetches the whole search index with every page. It waits here for the first search.

"use strict";

{
  const send = XMLHttpRequest.prototype.send;
  const open = XMLHttpRequest.prototype.open;
  XMLHttpRequest.prototype.open = function (method, url, ...more) {
    this.isIndex = String(url).endsWith("/search/search_index.json");
    return open.call(this, method, url, ...more);
  };
  XMLHttpRequest.prototype.send = function (...body) {
    if (!this.isIndex) return send.apply(this, body);
    const input = document.querySelector("[data-md-component=search-query]");
    const toggle = document.querySelector("[data-md-toggle=search]");
    const go = () => {
      input.removeEventListener("focus", go);
      toggle.removeEventListener("change", go);
      send.apply(this, body);
    };
    input.addEventListener("focus", go);
    toggle.addEventListener("change", go);
  };
}
