import { createSteps, type Steps } from './steps.ts';

/**
 * Proofs of reasoning on their way through a client that only knows one text for them (`reasoning_signature`).
 * Each proof is a segment `<maker>:<mark>:<proof>;`, so that pieces of a stream are joined by plain concatenation, and
 * one maker's proofs are never shown to another, which would refuse them. Clients send the text back as it was.
 */
export interface Proof {
  readonly mark: string;
  readonly proof: string;
}

export type ProofMaker = 'claude' | 'google';

/** Proofs are base64 wherever they were seen; should one not be, it must not look like two. */
const ESCAPES: ReadonlyMap<string, string> = new Map([
  ['%', '%25'],
  [':', '%3A'],
  [';', '%3B'],
]);

export function packProof(maker: ProofMaker, mark: string, proof: string): string {
  return `${maker}:${mark}:${proof.replaceAll(/[%:;]/g, (sign) => ESCAPES.get(sign) ?? sign)};`;
}

/** This maker's proofs in a packed text. Text that is not packed at all is one proof without a mark. */
export function unpackProofs(maker: ProofMaker, packed: string, steps: Steps = createSteps()): readonly Proof[] {
  if (packed === '') return [];
  if (!packed.includes(':')) return [{ mark: '', proof: packed }];
  const proofs: Proof[] = [];
  let start = 0;
  while (start < packed.length) {
    steps.take();
    const found = packed.indexOf(';', start);
    const end = found === -1 ? packed.length : found;
    const proof = readSegment(maker, packed, start, end);
    if (proof !== undefined) proofs.push(proof);
    start = end + 1;
  }
  return proofs;
}

function readSegment(maker: ProofMaker, packed: string, start: number, end: number): Proof | undefined {
  if (!packed.startsWith(`${maker}:`, start)) return undefined;
  const [, mark, proof] = packed.slice(start, end).split(':', 3);
  return mark === undefined || proof === undefined || proof === '' ? undefined : { mark, proof: withoutEscapes(proof) };
}

function withoutEscapes(proof: string): string {
  return proof.replaceAll('%3A', ':').replaceAll('%3B', ';').replaceAll('%25', '%');
}
