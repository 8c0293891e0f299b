// The worker, as functions that return promises.

const SECONDS = 60; // A first check on a slow machine takes 10.

export class Engine {
  // `onProgress` receives what the worker is loading.
  constructor(onProgress) {
    this.onProgress = onProgress;
    this.calls = new Map();
    this.last = 0;
    this.start();
  }

  start() {
    this.worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    this.worker.onmessage = ({ data }) => {
      if (data.progress) this.onProgress(data.progress);
      else this.settle(data);
    };
    this.worker.onerror = (event) => {
      const error = event.message || "gpufence could not be loaded";
      for (const id of [...this.calls.keys()]) this.settle({ id, error });
    };
  }

  // Call a function of engine.py.
  call(name, ...args) {
    const id = ++this.last;
    return new Promise((resolve, reject) => {
      const late = () => {
        this.worker.terminate();
        this.start();
        this.settle({ id, error: `No answer within ${SECONDS} s. The text may be too large.` });
      };
      this.calls.set(id, { resolve, reject, timer: setTimeout(late, SECONDS * 1000) });
      this.worker.postMessage({ id, call: name, args });
    });
  }

  settle({ id, result, error }) {
    const { resolve, reject, timer } = this.calls.get(id) ?? {};
    this.calls.delete(id);
    clearTimeout(timer);
    if (error) reject?.(new Error(error));
    else resolve?.(result);
  }
}
