import { storedInGemini, withOwnSignatures } from '../../src/completions/ingress/gemini/gemini-content.ts';
import { storedInMessages, withOwnProofs } from '../../src/completions/ingress/messages/messages-request.ts';
import { storedInResponses } from '../../src/completions/ingress/responses/responses-request.ts';
import { createLaneReader } from '../../src/completions/lanes/lane-reader.ts';
import { generateLane, messagesLane, responsesLane } from '../../src/completions/lanes/request-lanes.ts';
import { spliceModel } from '../../src/completions/relay/splice-body.ts';
import { estimateTokensIn } from '../../src/completions/relay/token-usage.ts';
import { GEMINI, MESSAGES, RESPONSES } from '../kit/worst-requests.ts';

/**
 * Work that a caller drives. Each row makes the worst input of a given size, and does the work on it. Dialects and schemas
 * are measured by themselves; a new template, matcher or parser that reads what a caller sends needs a row.
 */
export interface Row {
  readonly name: string;
  /** How many parts: as many as a call may have, or as take a few milliseconds. */
  readonly size: number;
  readonly work: (size: number) => () => unknown;
}

const PARTS = 2_000;

/** What is done with requests and streams that pass as bytes. */
export const LANE_ROWS: readonly Row[] = [
  ...Object.entries(MESSAGES).map(
    ([name, make]): Row => ({
      name: `messages: ${name} are looked at before they pass as bytes`,
      size: PARTS,
      work: (size) => {
        const request = make(size);
        const { messages, tools } = request;
        return () => [storedInMessages(request), withOwnProofs(request), estimateTokensIn(messages, tools)];
      },
    }),
  ),
  ...Object.entries(RESPONSES).map(
    ([name, make]): Row => ({
      name: `responses: ${name} are looked at before they pass as bytes`,
      size: PARTS,
      work: (size) => {
        const request = make(size);
        return () => [storedInResponses(request), estimateTokensIn(request.input, request.tools)];
      },
    }),
  ),
  ...Object.entries(GEMINI).map(
    ([name, make]): Row => ({
      name: `gemini: ${name} are looked at before they pass as bytes`,
      size: PARTS,
      work: (size) => {
        const request = make(size);
        return () => [storedInGemini(request), withOwnSignatures(request), estimateTokensIn(request.contents)];
      },
    }),
  ),
  {
    name: 'the model is found among members that have the same key',
    size: 500_000,
    work: (size) => {
      const bytes = Buffer.from(`{"tools":[${'{"model":"\\\\"},'.repeat(size / 16)}0],"model":"a"}`);
      return () => spliceModel(bytes, 'a', 'b');
    },
  },
  ...[messagesLane, responsesLane, generateLane].map((lane): Row => {
    const mark = lane.delta.mark.replaceAll(/[",]/g, '');
    const event = `data: {"type":"x${mark}","delta":{"text":"\\"usage\\""},"usage":{}}\n\n`;
    return {
      name: `a stream of ${lane.name} passes as bytes`,
      size: 4000,
      work: (size) => {
        const bytes = Buffer.from(event.repeat(size));
        const options = { lane, promptTokens: 1, onKept: () => undefined };
        return () => createLaneReader(options).feed(bytes);
      },
    };
  }),
];
