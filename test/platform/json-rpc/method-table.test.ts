import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type TSchema, Type } from 'typebox';
import { rawJson, rawJsonOf } from '../../../src/platform/json-rpc/envelope.ts';
import { createDispatch, defineMethod, type MethodRow } from '../../../src/platform/json-rpc/method-table.ts';
import { startProcessorTime } from '../../kit/time.ts';
import { call, type Message, openRawClient, rows } from './carriers.ts';

interface Issue {
  readonly path: string;
  readonly message: string;
}

function row(name: string, params: TSchema = Type.Object({}), result: object = { name }): MethodRow<string> {
  return defineMethod({ name, summary: name, params, result: Type.Object({}), handle: () => result });
}

async function answerOf(table: readonly MethodRow<string>[], message: unknown): Promise<Message> {
  const [answer] = await openRawClient({ dispatch: createDispatch({ rows: table }) }).exchange(message);
  return answer as Message;
}

async function issuesOf(schema: TSchema, params: unknown): Promise<{ issues: readonly Issue[]; message: string }> {
  const { error } = await answerOf([row('m', schema)], call(1, 'm', params));
  assert.equal(error?.code, -32602);
  assert.equal(error.data.code, 'INVALID_PARAMS');
  return { issues: error.data.issues as Issue[], message: error.message };
}

test('B-22: every row of the table can be called, and nothing else', async () => {
  const dispatch = createDispatch<string>({ rows });
  const client = openRawClient({ dispatch });
  for (const { name } of rows) {
    const answers = (await client.exchange(call(1, name, { minuend: 1, subtrahend: 1 }))) as Message[];
    assert.notEqual(answers.at(-1)?.error?.code, -32601, name);
  }
  const foreign = [
    '',
    'ECHO',
    'echo.',
    '.echo',
    'echo\0',
    'rpc.echo',
    'constructor',
    'hasOwnProperty',
    '__proto__',
    'valueOf',
  ];
  for (const name of foreign) {
    const [answer] = (await client.exchange(call(1, name))) as Message[];
    assert.equal(answer?.error?.code, -32601, name);
  }
});

test('two rows of one name are refused when the table is made', () => {
  assert.throws(() => createDispatch({ rows: [row('a'), row('a')] }), /two methods are named a/);
});

test('an alias prefix reaches the same method; a row of that very name comes first', async () => {
  const dispatch = createDispatch<string>({
    rows: [row('acme.jobs.list'), row('app.jobs.get'), row('app.jobs.list'), row('other')],
    aliasPrefixes: [
      { from: 'acme.', to: 'app.' },
      { from: 'brand.x.', to: 'app.' },
    ],
  });
  const client = openRawClient({ dispatch });
  const reached: unknown[] = [];
  for (const name of [
    'acme.jobs.get',
    'brand.x.jobs.get',
    'app.jobs.get',
    'acme.jobs.list',
    'acme.other',
    'acme.',
    'acmexjobs.get',
  ]) {
    const [answer] = (await client.exchange(call(1, name))) as Message[];
    reached.push((answer?.result as { name: string } | undefined)?.name ?? answer?.error?.code);
  }
  assert.deepEqual(reached, ['app.jobs.get', 'app.jobs.get', 'app.jobs.get', 'acme.jobs.list', -32601, -32601, -32601]);
});

test('a name that is not known is echoed only in part', async () => {
  const { error } = await answerOf([], call(1, 'x'.repeat(5000)));
  assert.ok(JSON.stringify(error).length < 500);
});

test('the handler gets checked parameters, and {} for none', async () => {
  const seen: unknown[] = [];
  const method = defineMethod<string, TSchema, TSchema>({
    name: 'm',
    summary: 'm',
    params: Type.Object({ count: Type.Optional(Type.Integer()) }),
    result: Type.Object({}),
    handle: (params, { caller, method: name }) => ({ seen: seen.push([params, caller, name]) }),
  });
  await answerOf([method], call(1, 'm'));
  await answerOf([method], call(1, 'm', { count: 2, extra: true }));
  await answerOf([method], call(1, 'm', { count: '2' }));
  assert.deepEqual(seen, [
    [{}, 'someone', 'm'],
    [{ count: 2, extra: true }, 'someone', 'm'],
  ]);
});

test('issues say where and what, and the message names the first of them', async () => {
  const schema = Type.Object(
    {
      routing: Type.Object({ steps: Type.Array(Type.Object({ prompt: Type.String() })) }),
      mode: Type.Union([Type.Literal('auto'), Type.Literal('manual')]),
      limit: Type.Integer(),
    },
    { additionalProperties: false },
  );
  const { issues, message } = await issuesOf(schema, { routing: { steps: [{ prompt: 1 }] }, mode: 'x', 'a/b~': 1 });
  const byPath = new Map(issues.map((issue) => [issue.path, issue.message]));
  assert.equal(byPath.get('/routing/steps/0/prompt'), 'must be a string');
  assert.equal(byPath.get('/mode'), 'must be "auto" or "manual"');
  assert.equal(byPath.get('/limit'), 'is required');
  assert.equal(byPath.get('/a~1b~0'), 'is not known here: leave it out');
  assert.equal(byPath.size, 4);
  const first = issues[0];
  assert.ok(first);
  const field = first.path.slice(1).replaceAll('/', '.').replace('a~1b~0', 'a/b~').replace('a.b', 'a/b');
  assert.equal(message, `The parameters are not valid: ${field} ${first.message}`);
});

test('an issue with the parameters as a whole names them', async () => {
  const { message } = await issuesOf(Type.Object({}), []);
  assert.equal(message, 'The parameters are not valid: params must be an object');
});

test('only the first few issues are listed, with paths of bounded length', async () => {
  const wrong = Object.fromEntries(Array.from({ length: 1000 }, (_, index) => [`${'n'.repeat(3000)}${index}`, 1]));
  const { issues } = await issuesOf(Type.Object({}, { additionalProperties: false }), wrong);
  assert.ok(issues.length > 0 && issues.length <= 8);
  assert.ok(issues.every(({ path }) => path.length <= 200));
  const fields = Object.fromEntries(Array.from({ length: 20 }, (_, index) => [`field${index}`, Type.String()]));
  assert.equal((await issuesOf(Type.Object(fields), {})).issues.length, 8);
  const list = await issuesOf(Type.Object({ list: Type.Array(Type.String()) }), { list: new Array(100).fill(1) });
  assert.ok(list.issues.length > 0 && list.issues.length <= 8);
});

test('very many wrong values are refused quickly, without saying where', async () => {
  const schema = Type.Object({ list: Type.Array(Type.Object({ x: Type.Optional(Type.String()) })) });
  const processorTime = startProcessorTime();
  for (const list of [new Array(150_000).fill(1), new Array(3000).fill({ x: 1 })]) {
    const { issues, message } = await issuesOf(schema, { list });
    assert.deepEqual(issues, []);
    assert.equal(message, 'The parameters are not valid: they do not fit the schema');
  }
  assert.ok(processorTime() < 3000);
});

const Task = Type.Object({
  name: Type.Optional(Type.String()),
  workingDirectory: Type.Optional(Type.String()),
  routing: Type.Optional(Type.Object({ model: Type.Optional(Type.String()) })),
  steps: Type.Optional(Type.Array(Type.Union([Type.String(), Type.Object({ prompt: Type.Optional(Type.String()) })]))),
  args: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
  anything: Type.Optional(Type.Unknown()),
});

test('DU-13: members that a method does not know are named in the result, or refused where that is asked for', async () => {
  let isStrict = false;
  const table = [
    row('m', Task, { done: true }),
    row('raw', Task, rawJson('{}')),
    row('parts', Task, rawJsonOf(['{"a":', '1', '}'])),
  ];
  const client = openRawClient({ dispatch: createDispatch({ rows: table, isStrict: () => isStrict }) });
  const ask = async (method: string, params: unknown) =>
    ((await client.exchange(call(1, method, params))) as Message[])[0] as Message;
  const unknown = {
    workingDir: '/tmp',
    routing: { modle: 'x' },
    steps: ['a', { prompt: 'b', promt: 'c' }],
    'a/b~c': 1,
    __proto__: null,
  };
  const known = { name: 'n', args: { any: { thing: 1 } }, anything: { at: 'all' }, steps: ['a'], _meta: { ours: 1 } };
  const paths = ['/workingDir', '/routing/modle', '/steps/1/promt', '/a~1b~0c'];
  for (const [method, rest] of [
    ['m', { done: true }],
    ['raw', {}],
    ['parts', { a: 1 }],
  ] as const) {
    assert.deepEqual((await ask(method, known)).result, rest);
    const { warnings, ...result } = (await ask(method, unknown)).result as { warnings: Issue[] };
    assert.deepEqual(result, rest);
    assert.deepEqual(
      warnings.map(({ path }) => path),
      paths,
    );
    assert.equal(warnings[0]?.message, 'workingDir is not known here; did you mean workingDirectory? It was ignored.');
    assert.equal(warnings.at(-1)?.message, 'a/b~c is not known here. It was ignored.');
  }
  isStrict = true;
  assert.deepEqual((await ask('m', known)).result, { done: true });
  const { error } = await ask('m', unknown);
  assert.equal(error?.data.code, 'INVALID_PARAMS');
  assert.match(error?.message ?? '', /workingDir is not known here; did you mean workingDirectory\?/);
  assert.deepEqual(
    ((error?.data.issues ?? []) as Issue[]).map(({ path }) => path),
    paths,
  );
});

test('DU-13: however many members are not known, few are named', async () => {
  const params = Object.fromEntries(Array.from({ length: 5000 }, (_, index) => [`${'x'.repeat(500)}${index}`, 1]));
  const client = openRawClient({ dispatch: createDispatch({ rows: [row('m', Task)], isStrict: () => false }) });
  const [answer] = (await client.exchange(call(1, 'm', params))) as Message[];
  const { warnings } = (answer as Message).result as { warnings: Issue[] };
  assert.equal(warnings.length, 8);
  assert.ok(JSON.stringify(warnings).length < 4000);
});
