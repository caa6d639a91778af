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
export function unpackProofs(maker: ProofMaker, packed: string): readonly Proof[] {
  if (packed === '') return [];
  if (!packed.includes(':')) return [{ mark: '', proof: packed }];
  return packed.split(';').flatMap((segment) => {
    const [from, mark, proof] = segment.split(':', 3);
    if (from !== maker || mark === undefined || proof === undefined || proof === '') return [];
    return [{ mark, proof: withoutEscapes(proof) }];
  });
}

function withoutEscapes(proof: string): string {
  return proof.replaceAll('%3A', ':').replaceAll('%3B', ';').replaceAll('%25', '%');
}
