import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import type { ChatChunk, ChatCompletion } from '../../../src/completions/contract/chat.ts';
import type { ResponsesRequest } from '../../../src/completions/contract/responses.ts';
import { createSteps } from '../../../src/completions/dialects/dialect.ts';
import { loadDialect } from '../../../src/completions/dialects/dialect-table.ts';
import { readWhole } from '../../../src/completions/ingress/answer-blocks.ts';
import { createGeminiStream, geminiResponse } from '../../../src/completions/ingress/gemini/gemini-answer.ts';
import { readProof } from '../../../src/completions/ingress/gemini/gemini-content.ts';
import type { StreamEncoder } from '../../../src/completions/ingress/ingress-call.ts';
import { createMessagesStream, messageObject } from '../../../src/completions/ingress/messages/messages-answer.ts';
import {
  createResponsesStream,
  finishedResponse,
} from '../../../src/completions/ingress/responses/responses-answer.ts';
import { translateTools } from '../../../src/completions/ingress/responses/responses-tools.ts';
import fc from '../../kit/properties.ts';
import { createMarks, type Marks, type Piece } from './answer-pieces.ts';
import { ANSWERS, PIECES, type Upstream } from './answer-samples.ts';
import { contextFor, readStream } from './read-stream.ts';
import type { Json } from './translate-request.ts';

const CLIENTS = ['chat', 'messages', 'responses', 'generateContent'] as const;
type Client = (typeof CLIENTS)[number];

/** The table of the documentation, by what an answer has: whether each client gets it. */
function documented(): ReadonlyMap<string, Readonly<Record<Client, boolean>>> {
  const page = readFileSync(new URL('../../../docs/dialects.md', import.meta.url), 'utf8');
  const [, after = ''] = page.split('## What a translation cannot carry\n');
  const [section = ''] = after.split('\n## ');
  const rows = section
    .split('\n')
    .filter((line) => line.startsWith('| '))
    .map((line) => line.slice(2, -2).split(' | '));
  const [head = [], , ...body] = rows;
  assert.deepEqual(
    head.slice(1).map((cell) => cell.replaceAll('`', '')),
    CLIENTS,
  );
  return new Map(
    body.map(([name = '', ...cells]) => {
      for (const cell of cells) assert.match(cell, /^(?:yes|lost)$/, name);
      const [chat, messages, responses, generateContent] = cells.map((cell) => cell === 'yes');
      return [name, { chat, messages, responses, generateContent } as Record<Client, boolean>];
    }),
  );
}

const head = {
  id: 'resp_1',
  createdAt: 1,
  request: { model: 'x/y', input: '' } as ResponsesRequest,
  toolsOf: () => translateTools([], createSteps()),
  keep: () => {},
};
const messageHead = { id: 'msg_1', requestId: 'r', model: 'x/y', stops: ['stop-sequence'] };
const geminiHead = { id: 'g', model: 'x/y', includeThoughts: true };

const WHOLE: Readonly<Record<Client, (completion: ChatCompletion) => object>> = {
  chat: (completion) => completion,
  messages: (completion) => messageObject('msg_1', readWhole(completion, 'c'), messageHead.stops),
  responses: (completion) => finishedResponse(head, readWhole(completion, 'c', true)),
  generateContent: (completion) => geminiResponse(geminiHead, readWhole(completion, 'c', true)),
};
const STREAMS: Readonly<Record<Exclude<Client, 'chat'>, () => StreamEncoder>> = {
  messages: () => createMessagesStream(messageHead),
  responses: () => createResponsesStream(head),
  generateContent: () => createGeminiStream(geminiHead),
};

/** All that a client of a stream is told; of a response the events without the complete one at the end, which repeats them. */
function streamed(client: Client, chunks: readonly ChatChunk[]): string {
  if (client === 'chat') return joinedChunks(chunks);
  const encoder = STREAMS[client]();
  const events = [...encoder.begin(), ...chunks.flatMap((chunk) => encoder.read(chunk)), ...encoder.finish()];
  const bodies = events.map(({ data }) => JSON.parse(data) as Json);
  return shown(bodies.map((body) => (body.type === 'response.completed' ? body.response.usage : body)));
}

/** Proofs of thoughts on their way through a client of Gemini's are packed. */
function shown(value: unknown): string {
  const proofs: unknown[] = [];
  const text = JSON.stringify(value, (name, member) => {
    if (name === 'thoughtSignature') proofs.push(readProof(String(member)));
    return member;
  });
  return text + JSON.stringify(proofs);
}

function joinedChunks(chunks: readonly ChatChunk[]): string {
  const signature = chunks.map(({ choices }) => choices[0]?.delta.reasoning_signature ?? '').join('');
  return JSON.stringify(chunks) + signature;
}

function check(client: Client, text: string, marks: Marks, told: string): void {
  for (const { kind, text: mark } of marks.made) {
    const row = TABLE.get(kind);
    assert.ok(row !== undefined, `docs/dialects.md has no row "${kind}"`);
    assert.equal(text.includes(mark), row[client], `${kind} (${mark}) for a client of ${client}, ${told}:\n${text}`);
  }
}

const TABLE = documented();

for (const upstream of Object.keys(ANSWERS) as Upstream[]) {
  const pieces: readonly Piece[] = PIECES[upstream];
  const shapes = fc.uniqueArray(fc.constantFrom(...pieces), { minLength: 1, maxLength: pieces.length });
  test(`what an answer of ${upstream} has reaches every client, or is in the table of what is lost`, async () => {
    const dialect = await loadDialect(upstream);
    await fc.assert(
      fc.property(shapes, (shape) => {
        const marks = createMarks();
        const { whole, events } = ANSWERS[upstream](new Set(shape), marks);
        const { completion, failure } = dialect.decodeResponse(whole, contextFor('m'));
        assert.equal(failure, undefined);
        const read = readStream(dialect, events, contextFor('m', { stream: true }));
        assert.equal(read.failure, undefined);
        for (const client of CLIENTS) {
          check(client, shown(WHOLE[client](completion as ChatCompletion)), marks, `whole, from ${upstream}`);
          check(client, streamed(client, read.chunks), marks, `streamed, from ${upstream}`);
        }
      }),
    );
  });
}

test('the table of what a translation cannot carry has no row that no answer has', () => {
  const seen = new Set<string>();
  for (const upstream of Object.keys(ANSWERS) as Upstream[]) {
    const marks = createMarks();
    const pieces: readonly Piece[] = PIECES[upstream];
    ANSWERS[upstream](new Set(pieces), marks);
    ANSWERS[upstream](new Set(pieces.filter((piece) => piece !== 'calls' && piece !== 'refusal')), marks);
    for (const { kind } of marks.made) seen.add(kind);
  }
  assert.deepEqual(
    [...TABLE.keys()].filter((name) => !seen.has(name)),
    [],
  );
});
