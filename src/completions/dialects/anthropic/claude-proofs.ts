import { packProof, type TurnItem, unpackProofs } from '../conversation.ts';
import type { Steps } from '../dialect.ts';

/**
 * A block of thinking has a signature, a hidden one only its data. The mark of a proof says which, how much of the
 * reasoning text belongs to the block, and after how much of the answer's text it stood: `t120@34`, `r@0`.
 */
export type Thinking =
  | { readonly kind: 'thinking'; readonly thinking: string; readonly signature: string }
  | { readonly kind: 'hidden'; readonly data: string };

export type PlacedItem = Exclude<TurnItem, { kind: 'reasoning' }> | Thinking;

export function packThinking(length: number, position: number, signature: string): string {
  return signature === '' ? '' : packProof('claude', `t${length}@${position}`, signature);
}

export function packHiddenThinking(position: number, data: string): string {
  return data === '' ? '' : packProof('claude', `r@${position}`, data);
}

const MARK = /^(?:t(\d{1,9})|r)@(\d{1,9})$/;

type Placed = readonly { readonly position: number; readonly block: Thinking }[];

/**
 * The blocks that the proofs vouch for, in their order. None when the text is not what was signed: Claude refuses
 * altered thinking, and does without any.
 */
function readProofs(text: string, signature: string, steps: Steps): Placed {
  const placed: Placed[number][] = [];
  let taken = 0;
  for (const { mark, proof } of unpackProofs('claude', signature, steps)) {
    const [, length, position] = MARK.exec(mark) ?? [];
    if (mark === '') {
      placed.push({ position: 0, block: { kind: 'thinking', thinking: text, signature: proof } });
      taken = text.length;
    } else if (length !== undefined) {
      const thinking = text.slice(taken, taken + Number(length));
      placed.push({ position: Number(position), block: { kind: 'thinking', thinking, signature: proof } });
      taken += Number(length);
    } else if (position !== undefined) {
      placed.push({ position: Number(position), block: { kind: 'hidden', data: proof } });
    }
  }
  return taken === text.length ? placed : [];
}

/** An assistant's turn with its thinking at the places in the text where it stood: its proofs hold nowhere else. */
export function placeThinking(items: readonly TurnItem[], steps: Steps): readonly PlacedItem[] {
  const result: PlacedItem[] = [];
  let waiting: Placed = [];
  /** How many of those that wait are placed already. */
  let placed = 0;
  let position = 0;
  const placeUpTo = (limit: number): void => {
    for (let next = waiting[placed]; next !== undefined && next.position <= limit; next = waiting[placed]) {
      result.push(next.block);
      placed += 1;
    }
  };
  for (const item of items) {
    if (item.kind === 'reasoning') {
      placeUpTo(Number.POSITIVE_INFINITY);
      position = 0;
      placed = 0;
      waiting = readProofs(item.text, item.signature, steps);
    } else if (item.kind === 'text') {
      let rest = item.text;
      placeUpTo(position);
      for (let next = waiting[placed]; next !== undefined; next = waiting[placed]) {
        const cut = next.position - position;
        if (cut >= rest.length) break;
        result.push({ ...item, text: rest.slice(0, cut) });
        rest = rest.slice(cut);
        position += cut;
        placeUpTo(position);
      }
      result.push({ ...item, text: rest });
      position += rest.length;
    } else {
      placeUpTo(Number.POSITIVE_INFINITY);
      result.push(item);
    }
  }
  placeUpTo(Number.POSITIVE_INFINITY);
  return result;
}
