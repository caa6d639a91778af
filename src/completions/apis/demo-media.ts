import { hash } from 'node:crypto';
import { crc32, deflateSync } from 'node:zlib';

/** The demo models besides `demo/echo`, each for one operation, so that every one can be tried without a key. */
export const DEMO_MEDIA = ['image', 'speech', 'transcription', 'moderation', 'rerank'] as const;

const SIZE = 64;

/** A small PNG: bands in colours that depend on the prompt. */
export function demoImage(prompt: string): Buffer {
  const colours = hash('sha256', prompt, 'buffer');
  const rows = Array.from({ length: SIZE }, (_, row) => {
    const at = Math.floor(row / 8) * 3;
    const pixel = colours.subarray(at, at + 3);
    return Buffer.concat([Buffer.from([0]), ...Array.from({ length: SIZE }, () => pixel)]);
  });
  const head = Buffer.alloc(13);
  head.writeUInt32BE(SIZE, 0);
  head.writeUInt32BE(SIZE, 4);
  // Eight bits for each of red, green and blue.
  head.set([8, 2], 8);
  const chunks = [pngChunk('IHDR', head), pngChunk('IDAT', deflateSync(Buffer.concat(rows))), pngChunk('IEND')];
  return Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), ...chunks]);
}

function pngChunk(type: string, data: Buffer = Buffer.alloc(0)): Buffer {
  const body = Buffer.concat([Buffer.from(type), data]);
  const frame = Buffer.alloc(8);
  frame.writeUInt32BE(data.length, 0);
  frame.writeUInt32BE(crc32(body), 4);
  return Buffer.concat([frame.subarray(0, 4), body, frame.subarray(4)]);
}

const RATE = 8000;
const MAX_WORDS = 50;

/** A short WAV: one tone for each word. */
export function demoSpeech(text: string): Buffer {
  const words = text.trim().split(/\s+/, MAX_WORDS);
  const samples = Buffer.concat(words.map((word) => tone(220 + 20 * Math.min(word.length, 20))));
  const head = Buffer.alloc(44);
  head.write('RIFF', 0);
  head.writeUInt32LE(36 + samples.length, 4);
  head.write('WAVEfmt ', 8);
  head.writeUInt32LE(16, 16);
  // One channel of eight bits without compression.
  head.writeUInt16LE(1, 20);
  head.writeUInt16LE(1, 22);
  head.writeUInt32LE(RATE, 24);
  head.writeUInt32LE(RATE, 28);
  head.writeUInt16LE(1, 32);
  head.writeUInt16LE(8, 34);
  head.write('data', 36);
  head.writeUInt32LE(samples.length, 40);
  return Buffer.concat([head, samples]);
}

function tone(hertz: number): Buffer {
  const wave = (_: unknown, at: number) => 128 + Math.round(60 * Math.sin((2 * Math.PI * hertz * at) / RATE));
  return Buffer.from(Uint8Array.from({ length: RATE / 10 }, wave));
}

/** Documents by the share of the query's words that they have. */
export function demoRerank(query: string, documents: readonly unknown[], most = documents.length) {
  const words = new Set(query.toLowerCase().split(/\W+/).filter(Boolean));
  const scored = documents.map((document, index) => {
    const text = typeof document === 'string' ? document : JSON.stringify(document);
    const own = new Set(text.toLowerCase().split(/\W+/));
    const shared = [...words].filter((word) => own.has(word)).length;
    return { index, relevance_score: words.size === 0 ? 0 : shared / words.size };
  });
  return scored.sort((a, b) => b.relevance_score - a.relevance_score || a.index - b.index).slice(0, most);
}
