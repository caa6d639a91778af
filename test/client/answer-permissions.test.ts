import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { createTrestleClient, type TrestleClient } from '../../src/client/trestle-client.ts';
import { type Keys, whileAnswering } from '../../src/commands/answer-permissions.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../kit/bridge/start-bridge.ts';
import { createScriptedProvider } from '../kit/scripted-provider.ts';
import { until } from '../kit/until.ts';

const OPTIONS = [
  { optionId: 'yes', name: 'Allow', kind: 'allow_once' },
  { optionId: 'no', name: 'Reject', kind: 'reject_once' },
];

/** Asks once for each word of its prompt, one after the other, and says what was chosen. */
const asker = createScriptedProvider('asker', async ({ prompt, ask, signal }) => {
  const chosen: unknown[] = [];
  for (const word of prompt.split(' ')) {
    const question = { toolCallId: word, title: `run ${word}`, toolKind: 'execute', input: {}, options: OPTIONS };
    chosen.push((await ask?.(question, signal))?.optionId);
  }
  if (signal.aborted) return { kind: 'cancelled', output: '' };
  return { kind: 'completed', output: chosen.join(' '), stopReason: 'end_turn' };
});
const { url } = await startBridge({ after }, { providers: [asker], isGuarded: true });

function clientOf(token: string, more: Partial<Parameters<typeof createTrestleClient>[0]> = {}): TrestleClient {
  const client = createTrestleClient({ url, token, ...more });
  after(() => client.close());
  return client;
}
const other = clientOf(MAIN_TOKEN);

/** A person before a terminal: what it shows, and keys that are pressed. */
function openScreen() {
  let text = '';
  let listener: ((typed: string) => void) | undefined;
  /** How many questions have let go of the keys. */
  let releases = 0;
  const keys: Keys = {
    take(taker) {
      listener = taker;
      return () => {
        listener = undefined;
        releases += 1;
      };
    },
    interrupt: () => undefined,
  };
  const context = {
    ...{ environment: {}, workingDirectory: '/', homeDirectory: '/', color: false },
    stdout: () => undefined,
    stderr: (more: string) => {
      text += more;
    },
  };
  const times = (part: string) => text.split(part).length - 1;
  return {
    keys,
    context,
    text: () => text,
    shows: (part: string, count = 1) => until(`${count} times ${part}`, () => times(part) >= count),
    /** Presses it until it counts: keys that come before the question could be read do not. */
    async press(key: string) {
      const before = releases;
      await until(`${key} to be taken`, async () => {
        if (releases === before) listener?.(key);
        await pause(50);
        return releases > before;
      });
    },
  };
}

/** Runs a turn of a session whose questions are shown on a screen. */
function ask(trestle: TrestleClient, sessionId: string, prompt: string, owner?: string) {
  const screen = openScreen();
  const session = trestle.session(sessionId, { routing: { permissions: 'ask' } });
  const answers = { trestle, session, owner, context: screen.context, keys: screen.keys, isAsked: true };
  const output = whileAnswering(answers, async () => (await session.start(prompt).result).output);
  return { ...screen, output };
}

test('a question that somebody else answers makes room for the next one', async () => {
  const { output, shows, press, text } = ask(clientOf(MAIN_TOKEN), 'shared', 'first second');
  await shows('run first');
  const [question] = await other.permissions.list({ sessionId: 'shared' });
  await other.permissions.answer(question?.permissionId ?? '', { decision: 'deny' });
  await shows('run second');
  assert.match(text(), /run first\n.*\n {2}This question is no longer open\.\n\nexecute\? run second/s);
  await press('y');
  assert.equal(await output, 'no yes');
  assert.equal(text().split('no longer open').length, 2, 'the own answer is not that of somebody else');
});

test('a question whose answer did not reach the server is shown again', async () => {
  let failures = 0;
  const trestle = clientOf(MAIN_TOKEN, {
    fetch: async (input, init) => {
      if (failures === 0 && String(input).endsWith('/answer')) {
        failures += 1;
        throw new TypeError('fetch failed');
      }
      return fetch(input, init);
    },
  });
  const { output, shows, press } = ask(trestle, 'lost', 'once');
  await shows('execute? run once');
  await press('y');
  await shows('execute? run once', 2);
  await press('n');
  assert.equal(await output, 'no');
  assert.equal(failures, 1);
});

test('only questions of the session of the named owner are shown', async () => {
  const theirs = clientOf(REVIEW_TOKEN).session('same', { routing: { permissions: 'ask' } });
  const turn = theirs.start('theirs').result;
  await until('their question', async () => (await other.permissions.list({ owner: 'review' }))[0]);
  const { output, shows, press, text } = ask(clientOf(MAIN_TOKEN), 'same', 'own', 'main');
  await shows('run own');
  await press('y');
  assert.equal(await output, 'yes');
  assert.equal(text().includes('run theirs'), false, text());
  await other.session('same').cancel({ owner: 'review' });
  assert.equal((await turn).status, 'cancelled');
});
