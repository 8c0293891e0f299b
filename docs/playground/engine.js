// The worker, as functions that return promises.

const SECONDS = 60; // For a call of the loaded worker. A first check on a slow machine takes 10.

export class Engine {
  // `onProgress` receives what the worker is loading, as text.
  constructor(onProgress) {
    this.onProgress = onProgress;
    this.calls = new Map();
    this.last = 0;
    this.start();
  }

  start() {
    this.ready = false;
    this.worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    this.worker.onmessage = ({ data }) => {
      if (data.progress) this.onProgress(data.progress);
      else if (data.ready) this.startClocks();
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
      this.calls.set(id, { resolve, reject });
      this.worker.postMessage({ id, call: name, args });
      if (this.ready) this.startClocks();
    });
  }

  // Start the clocks of the calls: the worker is loaded, which takes minutes on a slow line.
  startClocks() {
    this.ready = true;
    for (const [id, call] of this.calls) {
      call.timer ??= setTimeout(() => this.late(id), SECONDS * 1000);
    }
  }

  late(id) {
    this.worker.terminate();
    this.settle({ id, error: `No answer within ${SECONDS} s. The text may be too large.` });
    for (const other of [...this.calls.keys()]) {
      this.settle({ id: other, error: "An earlier check took too long. Edit the text again." });
    }
    this.start();
  }

  settle({ id, result, error }) {
    const { resolve, reject, timer } = this.calls.get(id) ?? {};
    this.calls.delete(id);
    clearTimeout(timer);
    if (error) reject?.(new Error(error));
    else resolve?.(result);
  }
}
