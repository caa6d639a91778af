import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startCompletions } from '../../kit/completions/start-completions.ts';
import {
  answers,
  type Behaviour,
  refuses,
  type SeenRequest,
  startScriptedUpstream,
} from '../../kit/scripted-upstream.ts';

const upstream = await startScriptedUpstream({ after });
const { post, usage } = await startCompletions(
  { after },
  {
    settings: {
      apis: {
        lab: { dialect: 'openai', base_url: upstream.url },
        cohere: { dialect: 'cohere', base_url: `${upstream.origin}/v2`, api_key: 'cohere-key-123' },
        gem: { dialect: 'google', base_url: `${upstream.origin}/v1beta`, api_key: 'gemini-key-123' },
        vertex: { dialect: 'google-vertex', base_url: `${upstream.origin}/v1/projects/p`, api_key: 'AIza-vertex-123' },
        bed: { dialect: 'bedrock', base_url: upstream.origin, api_key: 'bedrock-key-123' },
      },
    },
  },
);

interface Embedded {
  readonly data: readonly { readonly index: number; readonly embedding: readonly number[] }[];
  readonly usage: Record<string, unknown>;
  readonly error?: { readonly code: string; readonly message: string };
}

async function embed(model: string, input: unknown, extra: object = {}) {
  upstream.requests.length = 0;
  const response = await post('/v1/embeddings', { model, input, ...extra });
  return { response, body: (await response.json()) as Embedded };
}

/** Text number 7 is `t7`, and its embedding is [7, 0.5]. */
const textsOf = (count: number) => Array.from({ length: count }, (_, number) => `t${number}`);
const numbersOf = (text: unknown) => [Number(String(text).slice(1)), 0.5];
type Row = readonly Record<string, unknown>[];

/** Plays each upstream: what it answers for the texts that it is given. Later calls answer first. */
const plays =
  (
    read: (json: Record<string, unknown>) => readonly unknown[],
    answer: (texts: readonly unknown[]) => object,
  ): Behaviour =>
  async (response, request) => {
    await new Promise((resolve) => setTimeout(resolve, upstream.requests.length === 1 ? 30 : 1));
    answers(answer(read(request.json)))(response, request);
  };

const CASES: readonly {
  readonly model: string;
  readonly most: number;
  readonly path: string;
  readonly plays: Behaviour;
  readonly textsIn: (json: Record<string, unknown>) => readonly unknown[];
  /** Tokens that the upstream counts for each text. */
  readonly counts: boolean;
}[] = [
  {
    model: 'cohere/embed-v4.0',
    most: 96,
    path: '/v2/embed',
    textsIn: (json) => json.texts as string[],
    plays: plays(
      (json) => json.texts as string[],
      (texts) => ({
        embeddings: { float: texts.map(numbersOf) },
        meta: { billed_units: { input_tokens: texts.length } },
      }),
    ),
    counts: true,
  },
  {
    model: 'gem/gemini-embedding-001',
    most: 100,
    path: '/v1beta/models/gemini-embedding-001:batchEmbedContents',
    textsIn: (json) => json.requests as Row,
    plays: plays(
      (json) =>
        (json.requests as { content: { parts: { text: string }[] } }[]).map(({ content }) => content.parts[0]?.text),
      (texts) => ({ embeddings: texts.map((text) => ({ values: numbersOf(text) })) }),
    ),
    counts: false,
  },
  {
    model: 'vertex/text-embedding-005',
    most: 100,
    path: '/v1/projects/p/publishers/google/models/text-embedding-005:predict',
    textsIn: (json) => json.instances as Row,
    plays: plays(
      (json) => (json.instances as { content: string }[]).map(({ content }) => content),
      (texts) => ({
        predictions: texts.map((text) => ({ embeddings: { values: numbersOf(text), statistics: { token_count: 1 } } })),
      }),
    ),
    counts: true,
  },
  {
    model: 'bed/cohere.embed-english-v3',
    most: 96,
    path: '/model/cohere.embed-english-v3/invoke',
    textsIn: (json) => json.texts as string[],
    plays: plays(
      (json) => json.texts as string[],
      (texts) => ({ embeddings: texts.map(numbersOf), response_type: 'embeddings_floats' }),
    ),
    counts: false,
  },
];

test('DC-19: more texts than an upstream takes are split, and order and usage are kept', async () => {
  for (const { model, most, path, plays: behaviour, textsIn, counts } of CASES) {
    upstream.script(behaviour);
    const count = 2 * most + 3;
    const { response, body } = await embed(model, textsOf(count));
    assert.equal(response.status, 200, `${model}: ${JSON.stringify(body).slice(0, 200)}`);
    assert.deepEqual(
      body.data.map(({ index, embedding }) => [index, embedding[0]]),
      Array.from({ length: count }, (_, number) => [number, number]),
      model,
    );
    const sizes = upstream.requests.map(({ json }) => textsIn(json).length).sort((a, b) => b - a);
    assert.deepEqual(sizes, [most, most, 3], model);
    assert.ok(
      upstream.requests.every((request) => request.path === path),
      upstream.requests[0]?.path,
    );
    assert.equal(new Set(upstream.requests.map(({ headers }) => headers['idempotency-key'])).size, 3);
    if (counts) assert.deepEqual(body.usage, { prompt_tokens: count, total_tokens: count }, model);
    else assert.equal(body.usage.estimated, true, model);
  }
});

test('DC-19: Titan on Bedrock and Gemini on Vertex get one text at a time', async () => {
  const one = (request: SeenRequest) =>
    request.json.inputText ?? (request.json.instances as { content: string }[])[0]?.content;
  upstream.script((response, request) => {
    const embedding = numbersOf(one(request));
    const predictions = [{ embeddings: { values: embedding, statistics: { token_count: 2 } } }];
    answers({ embedding, inputTextTokenCount: 2, predictions })(response, request);
  });
  for (const model of ['bed/amazon.titan-embed-text-v2:0', 'vertex/gemini-embedding-001']) {
    const { body } = await embed(model, textsOf(5), { dimensions: 256 });
    assert.deepEqual(
      body.data.map(({ embedding }) => embedding[0]),
      [0, 1, 2, 3, 4],
    );
    assert.deepEqual(body.usage, { prompt_tokens: 10, total_tokens: 10 });
    assert.equal(upstream.requests.length, 5);
    assert.match(upstream.requests[0]?.text ?? '', /256/, model);
  }
});

test('DC-19: input_type and task_type reach every upstream in its own words', async () => {
  for (const [extra, cohere, google] of [
    [{}, 'search_document', undefined],
    [{ input_type: 'search_query' }, 'search_query', 'RETRIEVAL_QUERY'],
    [{ task_type: 'RETRIEVAL_QUERY' }, 'search_query', 'RETRIEVAL_QUERY'],
    [{ task_type: 'SEMANTIC_SIMILARITY' }, 'clustering', 'SEMANTIC_SIMILARITY'],
    [{ input_type: 'query' }, 'search_query', 'RETRIEVAL_QUERY'],
    [{ input_type: null, task_type: null }, 'search_document', undefined],
  ] as const) {
    for (const { model, plays: behaviour } of CASES) {
      upstream.script(behaviour);
      const { body } = await embed(model, 't1', extra);
      assert.equal(body.data.length, 1, model);
      const { json } = upstream.requests[0] as SeenRequest;
      const [item] = ((json.requests ?? json.instances) as Row | undefined) ?? [json];
      const sent = item?.input_type ?? item?.taskType ?? item?.task_type;
      assert.equal(sent, json.texts === undefined ? google : cohere, `${model} ${JSON.stringify(extra)}`);
    }
  }
  upstream.script(answers({ object: 'list', data: [], model: 'e', usage: { prompt_tokens: 1, total_tokens: 1 } }));
  await embed('lab/e', 'Hi', { input_type: 'query' });
  assert.deepEqual(upstream.requests[0]?.json, { model: 'e', input: 'Hi', input_type: 'query' });
});

test('DC-19: one failed part fails the whole call, and an answer that lacks embeddings is not taken', async () => {
  const [cohere] = CASES;
  upstream.script(cohere?.plays as Behaviour, refuses(400, 'too many tokens'));
  const failed = await embed('cohere/embed-v4.0', textsOf(200));
  assert.deepEqual([failed.response.status, failed.body.error?.message], [400, 'too many tokens']);
  upstream.script(answers({ embeddings: { float: [[1, 2]] } }));
  const short = await embed('cohere/embed-v4.0', ['a', 'b']);
  assert.equal(short.response.status, 502);
  assert.ok(((await usage()).total.requests ?? 0) > 2, 'calls are metered');
});

test('the parts of a call that were answered are charged, although another part was refused', async () => {
  const embeddings = (json: Record<string, unknown>) => (json.texts as unknown[]).map(() => [1, 2]);
  upstream.script((response, request) => {
    const texts = request.json.texts as string[];
    const isBad = texts.includes('');
    return (isBad ? refuses(400, 'a text is empty') : answers({ embeddings: { float: embeddings(request.json) } }))(
      response,
      request,
    );
  });
  const { response, body } = await embed('cohere/charged', [...textsOf(192).map((text) => `${text}-words`), '']);
  assert.equal(response.status, 400);
  assert.match(body.error?.message ?? '', /a text is empty/);
  const { data } = await usage();
  const row = data.find(({ group }) => String(group) === 'cohere/charged');
  // 854 and 956 characters, four of which are a token.
  assert.deepEqual([row?.errors, row?.prompt_tokens], [1, 453]);
});

test('DC-19: a field that the upstream cannot take is named, or refused under strict parameters', async () => {
  const [cohere] = CASES;
  upstream.script(cohere?.plays as Behaviour);
  const named = await embed('cohere/embed-v4.0', 't1', { user: 'ann' });
  assert.equal(named.response.headers.get('x-dropped-params'), 'user');
  const body = { model: 'cohere/embed-v4.0', input: 't1', user: 'ann' };
  const strict = await post('/v1/embeddings', body, { headers: { 'x-strict-params': 'true' } });
  assert.equal(strict.status, 400);
  const nova = await embed('bed/amazon.nova-pro-v1:0', 't1');
  assert.equal(nova.body.error?.code, 'operation_not_supported');
});
