// The state of the page in the fragment of its address, which browsers send to no server.
//
// `#sample=NAME` is an unchanged sample. `#1=DATA` is a state: JSON, compressed, in base64url.

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
  return JSON.parse(new TextDecoder().decode(await through(bytes, DecompressionStream)));
}

async function through(bytes, Stream) {
  const stream = new Blob([bytes]).stream().pipeThrough(new Stream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
