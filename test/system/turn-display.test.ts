import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { SessionUpdate, StructuredEvent, TrestleClient, Turn } from '../../src/client/trestle-client.ts';
import { moment, when } from '../../src/commands/sessions.ts';
import { createTurnDisplay, createWaitNotices } from '../../src/commands/turn-display.ts';
import { createFakeClock } from '../kit/fake-clock.ts';

type Result = Awaited<Turn['result']>;

function shown(color: boolean, updates: readonly Partial<SessionUpdate>[], end: Partial<Result>) {
  const written = { stdout: '', stderr: '' };
  const display = createTurnDisplay({
    color,
    stdout: (text) => {
      written.stdout += text;
    },
    stderr: (text) => {
      written.stderr += text;
    },
  });
  for (const update of updates) display.show(update as SessionUpdate);
  display.end({ artifacts: [], status: 'completed', ...end } as unknown as Result);
  return written;
}

const call = (status: 'in_progress' | 'completed' | 'failed', output?: unknown): Partial<SessionUpdate> => ({
  structuredEvent: {
    kind: 'tool_call',
    type: 'tool_call',
    toolCallId: 'c1',
    title: 'npm  test\nand more',
    status,
    toolKind: 'execute',
    output,
  } as StructuredEvent,
});

test('text goes to standard output, each tool call is one line on standard error', () => {
  const updates = [
    { delta: 'Let me ' },
    { delta: 'look.' },
    call('in_progress'),
    call('completed'),
    { delta: 'Done.' },
  ];
  assert.deepEqual(shown(false, updates, {}), {
    stdout: 'Let me look.\nDone.\n',
    stderr: '> npm test and more\n',
  });
});

test('a failed call, a failed turn and a cancelled one say why', () => {
  const failed = shown(false, [call('failed', 'exit 1\nstack')], {
    status: 'failed',
    error: 'It broke.',
    code: 'AGENT_FAILED',
  });
  assert.equal(failed.stderr, '> npm test and more\nx npm test and more: exit 1\nfailed It broke. (AGENT_FAILED)\n');
  assert.equal(shown(false, [], { status: 'cancelled' }).stderr, 'cancelled\n');
});

test('a refused question says what was denied, once', () => {
  const structuredEvent = {
    kind: 'status',
    status: 'permission_denied',
    text: 'Denied: rm -rf build',
  } as StructuredEvent;
  assert.equal(shown(false, [{ structuredEvent }], {}).stderr, 'denied rm -rf build\n');
});

test('what an agent writes cannot control the terminal', () => {
  const { stdout, stderr } = shown(true, [{ delta: 'a\u001b[2Jb\u009b31m\r\u0007c\td\n' }], {});
  assert.equal(stdout, 'a[2Jb31mc\td\n');
  assert.equal(stderr, '');
  const artifacts = [{ relativePath: 'a\u001b]0;x\u0007.txt', sizeBytes: 1 }] as unknown as Result['artifacts'];
  const ended = shown(false, [], { status: 'failed', error: 'It \u009b2Jbroke.', artifacts });
  assert.equal(ended.stderr, 'file a]0;x.txt (1 bytes)\nfailed It 2Jbroke.\n');
});

test('thinking, tokens and cost are shown on a terminal only', () => {
  const thinking: Partial<SessionUpdate> = { structuredEvent: { kind: 'thinking', type: 'thinking', text: 'Hm.' } };
  const end = { usage: { totalTokens: 12, costUsd: 0.00123 } };
  assert.deepEqual(shown(false, [thinking, { delta: 'x' }], end), { stdout: 'x\n', stderr: '' });
  assert.match(shown(true, [thinking, { delta: 'x' }], end).stderr, /Hm\..*12 tokens, 0\.0012 USD/s);
});

type View = Awaited<ReturnType<TrestleClient['sessions']['get']>>;

/** What is said about a turn whose session looks like this; undefined: there is none yet. */
async function saidWhile(t: TestContext, view: unknown, events: readonly string[], isAsked = false) {
  const said: string[] = [];
  let looks = 0;
  const get = async () => {
    looks += 1;
    if (view === undefined) throw Object.assign(new Error('none'), { code: 'SESSION_NOT_FOUND' });
    return view as View;
  };
  const trestle = { sessions: { get } } as unknown as Pick<TrestleClient, 'sessions'>;
  const clock = createFakeClock();
  const notices = createWaitNotices({ trestle, sessionId: 's1', isAsked, clock, say: (line) => said.push(line) });
  t.after(() => notices.stop());
  for (const event of events) notices.seen({ event } as SessionUpdate);
  await clock.advance(10_000);
  assert.ok(looks >= 4, `${looks} looks`);
  notices.stop();
  return said;
}

test('what a turn waits for is said once: a limit, another turn, a question', async (t) => {
  const permissions = [{ form: null, title: 'touch made' }];
  const view = (state: string, more = {}) => ({ session: { state }, permissions: [], ...more });
  const [unknown, full, behind, asking, shownElsewhere, working] = await Promise.all([
    saidWhile(t, undefined, []),
    saidWhile(t, view('waiting'), ['queued']),
    saidWhile(t, view('running'), ['queued']),
    saidWhile(t, view('needs_you', { permissions }), ['started']),
    saidWhile(t, view('needs_you', { permissions }), ['started'], true),
    saidWhile(t, view('running'), ['queued', 'started']),
  ]);
  const noPlace = 'the server is at its limit of running turns (trestle sessions lists them)';
  assert.deepEqual(unknown, [`waiting: the turn is being prepared, or ${noPlace}`]);
  assert.deepEqual(full, [`waiting: ${noPlace}`]);
  assert.deepEqual(behind, ['waiting for the turn that runs in this session']);
  assert.deepEqual(asking, ['waiting for permission: touch made\n  answer with: trestle sessions follow s1 --ask']);
  assert.deepEqual(shownElsewhere, []);
  assert.deepEqual(working, []);
});

test('a turn that is silent for long is looked at less and less often, and as often as before after an update', async (t) => {
  const clock = createFakeClock();
  let looks = 0;
  const get = async () => {
    looks += 1;
    return { session: { state: 'running' }, permissions: [] } as unknown as View;
  };
  const trestle = { sessions: { get } } as unknown as Pick<TrestleClient, 'sessions'>;
  const notices = createWaitNotices({ trestle, sessionId: 's1', isAsked: false, clock, say: () => undefined });
  t.after(() => notices.stop());
  notices.seen({ event: 'started' } as SessionUpdate);
  await clock.advance(2000);
  assert.ok(looks >= 2, `${looks} looks in the first seconds`);
  looks = 0;
  await clock.advance(10 * 60_000);
  assert.ok(looks >= 55 && looks <= 65, `${looks} looks in ten minutes`);
  notices.seen({ event: 'delta' } as SessionUpdate);
  await clock.advance(10_000);
  looks = 0;
  await clock.advance(2000);
  assert.ok(looks >= 1, 'looks again soon after an update');
});

test('lists show how long ago or in how long, to the nearest unit', () => {
  const now = Date.UTC(2030, 0, 31, 8);
  const shownTimes = [0, -59, 61, -3599, 6 * 3600 - 1, -36 * 3600, 30 * 86_400].map((s) => when(now + s * 1000, now));
  const expected = ['0 s ago', '59 s ago', 'in 1 min', '1 h ago', 'in 6 h', '2 d ago', 'in 30 d'];
  assert.deepEqual(shownTimes, expected);
  assert.equal(when(new Date(now).toISOString(), now), '0 s ago');
  assert.equal(moment(now), '2030-01-31 08:00 UTC');
});
