import type { AgentEvent, StepMark } from '../agents/agent-provider.ts';
import { createTextMeter, MAX_OUTPUT_LENGTH, type TextMeter } from '../agents/agent-text.ts';
import type { LongOutput } from '../artifacts/create-artifacts.ts';
import type { UpdateStore } from '../storage/update-store.ts';
import type { UpdateLog } from './update-log.ts';
import { readDelta } from './update-text.ts';

/** A text of a turn that is longer than its result can hold. The updates of the session contain all of it. */
export interface LongText {
  /** Of a multi-agent run: the step that wrote the text. */
  readonly stepIndex: number | undefined;
  /** The number of the update in which it begins. */
  readonly firstSeq: number;
  readonly length: number;
}

/** Remembers where the final texts of a turn begin: one text, or one for each step of a multi-agent run. */
export interface OutputTrace {
  /** Takes an event before it is emitted; `nextSeq` is the number of its first update. */
  note(event: AgentEvent, nextSeq: number, step: StepMark | undefined): void;
  longTexts(): readonly LongText[];
}

interface TracedText {
  readonly stepIndex: number | undefined;
  readonly meter: TextMeter;
  firstSeq: number;
}

export function createOutputTrace(): OutputTrace {
  const texts: TracedText[] = [];
  const current = new Map<number | undefined, TracedText>();
  function begin(stepIndex: number | undefined): TracedText {
    const text = { stepIndex, meter: createTextMeter(), firstSeq: 0 };
    texts.push(text);
    current.set(stepIndex, text);
    return text;
  }
  return {
    note(event, nextSeq, step) {
      const stepIndex = step?.stepIndex;
      // Each turn of a conversation between agents has a text of its own.
      if (event.kind === 'stage' && event.event === 'multi_agent_step_started') begin(stepIndex);
      const text = current.get(stepIndex) ?? begin(stepIndex);
      if (text.meter.add(event) === 'first') text.firstSeq = nextSeq;
    },
    longTexts: () =>
      texts
        .map(({ stepIndex, meter, firstSeq }) => ({ stepIndex, firstSeq, length: meter.length() }))
        .filter(({ length }) => length > MAX_OUTPUT_LENGTH),
  };
}

export type ReadLongText = (sessionKey: string, text: LongText) => LongOutput;

/** Reads long texts from the stored updates, a page at a time: they are never in memory as a whole. */
export function createLongTextReader(
  log: Pick<UpdateLog, 'flush'>,
  store: Pick<UpdateStore, 'readManyAfter'>,
): ReadLongText {
  async function* read(sessionKey: string, { stepIndex, firstSeq, length }: LongText): AsyncGenerator<Uint8Array> {
    await log.flush();
    let left = length;
    for (let last = firstSeq - 1; ; ) {
      const chunks = await store.readManyAfter(sessionKey, last);
      if (chunks.length === 0) return;
      for (const { first_seq: first, last_seq: lastOfChunk, updates } of chunks) {
        const fresh = updates.split('\n').slice(Math.max(0, last + 1 - first));
        for (const stored of fresh) {
          const delta = readDelta(stored);
          if (delta === undefined || delta.stepIndex !== stepIndex) continue;
          yield Buffer.from(delta.text);
          left -= delta.text.length;
          if (left <= 0) return;
        }
        last = lastOfChunk;
      }
    }
  }
  return (sessionKey, text) => ({
    label: text.stepIndex === undefined ? 'output' : `step-${text.stepIndex}-output`,
    chunks: read(sessionKey, text),
  });
}
