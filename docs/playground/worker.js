// Runs gpufence in Python, in WebAssembly, beside the page. All files come from the site itself.
//
// The page sends {id, call, args}, where `call` is a function of engine.py; the answer is
// {id, result} or {id, error}. While it starts, the worker sends {progress}, and then {ready}.

import { loadPyodide } from "./runtime/pyodide.mjs";

// The bytes of all files that are loaded, and what has arrived of them.
const sizes = fetch(new URL("runtime/sizes.json", import.meta.url)).then((found) => found.json());
const own = self.fetch;
let arrived = 0;
self.fetch = async (...args) => {
  const response = await own(...args);
  if (!response.ok || !response.body) return response;
  return new Response(response.body.pipeThrough(counting(await sizes)), response);
};
const started = start();

self.onmessage = async ({ data: { id, call, args } }) => {
  try {
    const engine = await started;
    self.postMessage({ id, result: JSON.parse(engine[call](...args)) });
  } catch (error) {
    self.postMessage({ id, error: String(error.message ?? error) });
  }
};

async function start() {
  const archives = ["runtime/gpufence.whl", "runtime/libraries.zip", "engine.py"].map(download);
  const python = await loadPyodide({
    indexURL: new URL("./runtime/", import.meta.url).href,
    // No package is loaded from an index: the archives hold all of them.
    lockFileContents: { info: lockInfo(), packages: {} },
  });
  const [wheel, libraries, engine] = await Promise.all(archives);
  const packages = "/packages";
  python.unpackArchive(wheel, "zip", { extractDir: packages });
  python.unpackArchive(libraries, "zip", { extractDir: packages });
  python.FS.writeFile(`${packages}/engine.py`, new Uint8Array(engine));
  python.runPython(`import os, sys; sys.path.insert(0, "${packages}"); os.chdir("/home")`);
  const engineModule = python.pyimport("engine");
  self.postMessage({ ready: true });
  return engineModule;
}

async function download(path) {
  const response = await fetch(new URL(path, import.meta.url));
  if (!response.ok) throw new Error(`${path}: HTTP status ${response.status}`);
  return response.arrayBuffer();
}

function counting({ total }) {
  return new TransformStream({
    transform(chunk, controller) {
      arrived += chunk.length;
      const percent = Math.min(100, Math.round((100 * arrived) / total));
      const part = `${megabytes(arrived)} of ${megabytes(total)}, ${percent} %`;
      progress(arrived < total ? `Loading Python and gpufence: ${part}` : "Starting Python and gpufence");
      controller.enqueue(chunk);
    },
  });
}

function megabytes(bytes) {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

function lockInfo() {
  return { abi_version: "2026_0", arch: "wasm32", platform: "emscripten_5_0_3", python: "3.14.2" };
}

function progress(text) {
  self.postMessage({ progress: text });
}
