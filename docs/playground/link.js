// The state of the page in the fragment of its address, which browsers send to no server.
//
// `#sample=NAME` is an unchanged sample. `#1=DATA` is a state: JSON, compressed, in base64url.

const MOST_BYTES = 2 ** 21;
const MOST_LINES = 50_000; // Each is an element of the page.

export async function encode(state) {
  const bytes = await through(new TextEncoder().encode(JSON.stringify(state)), CompressionStream);
  const binary = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return `#1=${btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
}

// Returns the state, or undefined if the fragment holds none.
export async function decode(fragment) {
  if (!fragment.startsWith("#1=")) return undefined;
  const binary = atob(fragment.slice(3).replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(binary, (character) => character.charCodeAt(0));
  const text = new TextDecoder().decode(await through(bytes, DecompressionStream, MOST_BYTES));
  if (text.split("\\n").length > MOST_LINES) throw new RangeError("the state has too many lines");
  return JSON.parse(text);
}

// A link of some kilobytes can expand to gigabytes, so that reading stops at a limit.
async function through(bytes, Stream, mostBytes = Infinity) {
  const stream = new Blob([bytes]).stream().pipeThrough(new Stream("deflate-raw"));
  const chunks = [];
  let size = 0;
  for (const reader = stream.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) return new Uint8Array(await new Blob(chunks).arrayBuffer());
    size += value.length;
    if (size > mostBytes) {
      await reader.cancel();
      throw new RangeError("the state is too large");
    }
    chunks.push(value);
  }
}
