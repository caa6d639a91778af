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

export function packProof(maker: ProofMaker, mark: string, proof: string): string {
  return `${maker}:${mark}:${proof};`;
}

/** This maker's proofs in a packed text. Text that is not packed at all is one proof without a mark. */
export function unpackProofs(maker: ProofMaker, packed: string): readonly Proof[] {
  if (packed === '') return [];
  if (!packed.includes(':')) return [{ mark: '', proof: packed }];
  return packed.split(';').flatMap((segment) => {
    const [from, mark, proof] = segment.split(':', 3);
    return from === maker && mark !== undefined && proof !== undefined && proof !== '' ? [{ mark, proof }] : [];
  });
}
