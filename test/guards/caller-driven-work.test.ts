import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { test } from 'node:test';
import { IsSchema, type TSchema } from 'typebox';
import { type CodecName, MAX_STEPS } from '../../src/completions/dialects/dialect.ts';
import { loadDialect } from '../../src/completions/dialects/dialect-table.ts';
import { decodeGeminiRequest } from '../../src/completions/ingress/gemini/gemini-request.ts';
import { decodeMessagesRequest } from '../../src/completions/ingress/messages/messages-request.ts';
import { decodeResponsesRequest } from '../../src/completions/ingress/responses/responses-request.ts';
import { AppError } from '../../src/platform/errors/app-error.ts';
import { createSchemaCheck } from '../../src/platform/http/request-body.ts';
import { CHATS, GEMINI, MESSAGES, many, RESPONSES } from '../kit/worst-requests.ts';
import { PARTS, quietly, ROWS, withInput } from './caller-driven-rows.ts';
import type { Row } from './lane-rows.ts';

/** A dialect without a row here does not compile, so every dialect is measured. */
const MODELS: Readonly<Record<CodecName, string>> = {
  openai: 'small',
  azure: 'small',
  responses: 'gpt-5-codex',
  anthropic: 'claude-sonnet-4-5',
  bedrock: 'anthropic.claude-sonnet-4-5',
  google: 'gemini-3-pro-preview',
  'google-vertex': 'gemini-2.0-flash',
  'vertex-claude': 'claude-sonnet-4-5@20250929',
  cohere: 'command-a',
};

/** What an upstream of each framing may answer: large in every list that some dialect reads. */
const worstAnswer = (size: number) => {
  const text = many(size, (at) => ({ type: 'text', text: 'x', id: `c${at}`, name: 'f', input: {} }));
  const calls = many(size, (at) => ({ id: `c${at}`, type: 'function', function: { name: 'f', arguments: '{}' } }));
  const parts = many(size, (at) => ({ text: 'x', functionCall: { id: `c${at}`, name: 'f', args: {} } }));
  return {
    choices: many(size, (index) => ({ index, message: { content: 'x', tool_calls: calls.slice(0, 2) } })),
    content: text,
    message: { content: text, tool_calls: calls },
    output: { message: { content: many(size, (at) => ({ text: 'x', toolUse: { toolUseId: `c${at}`, name: 'f' } })) } },
    candidates: [{ content: { parts }, finishReason: 'STOP' }],
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  };
};

async function dialectRows(): Promise<readonly Row[]> {
  const rows: Row[] = [];
  for (const [name, model] of Object.entries(MODELS)) {
    const dialect = await loadDialect(name as CodecName);
    const context = { model, stream: true, id: 'c', created: 1 };
    for (const [shape, make] of Object.entries(CHATS)) {
      rows.push({
        name: `${name} encodes ${shape}`,
        size: PARTS,
        work: (size) => withInput(make(size), (input) => JSON.stringify(dialect.encodeRequest(input, context).body)),
      });
    }
    rows.push(
      {
        name: `${name} decodes an answer`,
        size: PARTS,
        work: (size) => withInput(worstAnswer(size), (answer) => dialect.decodeResponse(answer, context)),
      },
      {
        name: `${name} decodes a failure`,
        size: PARTS,
        work: (size) => withInput(worstAnswer(size), (answer) => dialect.decodeFailure(400, answer)),
      },
      {
        name: `${name} decodes many events`,
        size: 400,
        work: (size) => {
          const [data, event] = [JSON.stringify(worstAnswer(1)), 'content_block_delta'];
          return () => {
            let state = dialect.startStream(context);
            for (let at = 0; at < size; at += 1) ({ state } = dialect.decodeEvent(state, { event, data }));
            return dialect.endStream?.(state);
          };
        },
      },
    );
  }
  return rows;
}

/** Every schema of every service, so a new one is measured without a row of its own. */
async function schemaRows(): Promise<readonly Row[]> {
  const rows: Row[] = [];
  for (const service of ['accounts', 'bridge', 'completions']) {
    const folder = new URL(`../../src/${service}/contract/`, import.meta.url);
    for (const file of readdirSync(folder)) {
      const exported = (await import(new URL(file, folder).href)) as Readonly<Record<string, unknown>>;
      for (const [name, schema] of Object.entries(exported)) {
        if (!isSchema(schema)) continue;
        const refuse = quietly(createSchemaCheck(schema, 'body'));
        for (const [shape, make] of Object.entries(SHAPES)) {
          rows.push({
            name: `${service}/${file} ${name} is checked: ${shape}`,
            size: 1_000,
            work: (size) => withInput(make(size, schema), refuse),
          });
        }
      }
    }
  }
  return rows;
}

function isSchema(value: unknown): value is TSchema {
  return typeof value === 'object' && value !== null && ('type' in value || 'anyOf' in value) && IsSchema(value);
}

const SHAPES: Readonly<Record<string, (size: number, schema: TSchema) => unknown>> = {
  'unknown members': (size) => Object.fromEntries(many(size, (at) => [`m${at}`, at])),
  'members that are lists of the wrong kind': (size, schema) =>
    Object.fromEntries(
      Object.keys('properties' in schema ? (schema.properties as object) : { x: 0 })
        .slice(0, 3)
        .map((name) => [name, many(size, () => ({}))]),
    ),
};

/** Processor time in milliseconds, the least of a few runs: other processes and collections of garbage only add to it. */
async function leastTime(work: () => unknown, runs = 2): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let run = 0; run < runs; run += 1) {
    const before = process.cpuUsage();
    await quietly(() => work())(undefined);
    const { user, system } = process.cpuUsage(before);
    least = Math.min(least, (user + system) / 1000);
  }
  return least;
}

/** Twice the input may take twice as long, and a little more for larger maps and for noise. */
const MAX_GROWTH = 2.6;
/** Below this, the clock of the processor and the compiler decide. */
const TOO_SHORT_MS = 8;
const TRIES = 10;
/**
 * Where a cache or the collector of garbage makes a step between the two sizes, three doublings are compared: eight times the
 * input takes eight times as long and a few steps more, and sixty-four times as long if the work grows with the square.
 */
const MAX_GROWTH_OVER_THREE = 27;

async function growthOf({ size, work }: Row): Promise<{ readonly ok: boolean; readonly shown: string }> {
  let shown = '';
  const large = work(size * 2);
  if ((await leastTime(large, 1)) < TOO_SHORT_MS) return { ok: true, shown };
  const small = work(size);
  await leastTime(small, 1);
  for (let attempt = 0; attempt < TRIES; attempt += 1) {
    const once = await leastTime(small);
    const twice = await leastTime(large);
    shown = `${once.toFixed(1)} ms, then ${twice.toFixed(1)} ms`;
    if (twice < TOO_SHORT_MS || twice <= once * MAX_GROWTH) return { ok: true, shown };
  }
  const least = await leastTime(work(Math.ceil(size / 4)), TRIES);
  const most = await leastTime(large, TRIES);
  shown += `; ${least.toFixed(1)} ms for a quarter, ${most.toFixed(1)} ms for eight times that`;
  return { ok: most <= least * MAX_GROWTH_OVER_THREE, shown };
}

test('DC-2: work that a caller drives takes twice as long for twice the input, and no more', async () => {
  const slow: string[] = [];
  for (const row of [...ROWS, ...(await dialectRows()), ...(await schemaRows())]) {
    const { ok, shown } = await growthOf(row);
    if (!ok) slow.push(`${row.name}: ${shown}`);
  }
  assert.deepEqual(slow, []);
});

test('DC-1: past the budget of steps every encoder and decoder refuses, before it has done much', async () => {
  const past = MAX_STEPS + 1;
  const refused = (work: () => unknown): boolean => {
    try {
      work();
      return false;
    } catch (error) {
      return error instanceof AppError && error.code === 'REQUEST_TOO_COMPLEX';
    }
  };
  /** What takes no step: plain fields, and shapes that the dialect passes on as they are. */
  const free = /fields that nobody knows|proofs of Google|proofs|schema|strict answer/;
  for (const [name, make] of Object.entries(MESSAGES)) {
    if (name !== 'many tools')
      assert.ok(
        refused(() => decodeMessagesRequest(make(past))),
        `messages: ${name}`,
      );
  }
  for (const [name, make] of Object.entries(GEMINI)) {
    assert.ok(
      refused(() => decodeGeminiRequest(make(past), { model: 'm', stream: false })),
      `gemini: ${name}`,
    );
  }
  for (const [name, make] of Object.entries(RESPONSES)) {
    assert.ok(
      refused(() => decodeResponsesRequest(make(past))),
      `responses: ${name}`,
    );
  }
  for (const dialect of ['anthropic', 'bedrock', 'google', 'cohere'] as const) {
    const { encodeRequest } = await loadDialect(dialect);
    for (const [name, make] of Object.entries(CHATS)) {
      if (free.test(name)) continue;
      const request = make(past);
      assert.ok(
        refused(() => encodeRequest(request, { model: 'm', stream: false, id: 'c', created: 1 })),
        `${dialect}: ${name}`,
      );
    }
  }
});
