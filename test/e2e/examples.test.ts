import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { projectRoot } from '../architecture/source-file.ts';
import { runNode } from '../kit/run-node.ts';
import { startProgram } from '../kit/running-program.ts';

const secret = 'a-secret-for-the-webhooks-of-this-test';
const { url } = await startProgram({ after }, { args: ['bridge'], environment: { BRIDGE_WEBHOOK_SECRET: secret } });

const run = (...args: readonly string[]) => runNode(args, { BRIDGE_WEBHOOK_SECRET: secret });

/** What each example prints; every file of examples/ has a row, or a test of its own beside this one. */
const printed: Readonly<Record<string, readonly RegExp[]>> = {
  session: [/^Agents: .+$/m, /^Hello from an app$/m, /^builtin completed$/m, /^And once more$/m],
  'multi-agent': [
    /multi_agent_started/,
    /step 0: .*One/,
    /^step 1: builtin, \d+ ms$/m,
    /^completed: Make this better: One line about the tide$/m,
  ],
  'two-nodes': [/^Hello from the edge\ncompleted by way of the edge$/m, /^Hello at the hub$/m, /^Hello once more$/m],
  'job-with-webhook': [
    /^job-\.\.\. pending$/m,
    /^job\.finished, signature ok$/m,
    /^completed: Hello from the background$/m,
  ],
};

test('every example is run', () => {
  const files = readdirSync(`${projectRoot}examples`).filter((name) => name.endsWith('.ts'));
  const names = files.map((name) => name.replace(/\.ts$/, ''));
  const elsewhere = names.filter((name) => existsSync(`${import.meta.dirname}/${name}.test.ts`));
  assert.deepEqual(elsewhere, ['nothing-lost', 'two-people', 'whole-story']);
  assert.deepEqual(names.sort(), [...Object.keys(printed), ...elsewhere].sort());
});

for (const [name, patterns] of Object.entries(printed)) {
  test(`examples/${name}.ts runs and prints what it is there for`, async () => {
    const output = await run(`examples/${name}.ts`, url);
    for (const pattern of patterns) assert.match(output, pattern);
  });
}

test('the program in docs/client.md runs as printed', async () => {
  const page = readFileSync(`${projectRoot}docs/client.md`, 'utf8');
  const code = /^```ts\n(.*?)^```/ms.exec(page)?.[1] ?? '';
  const here = code
    .replace("'trestle/client'", "'./src/client/trestle-client.ts'")
    .replaceAll('http://127.0.0.1:8787', url);
  assert.notEqual(here, code);
  const output = await run('--input-type=module-typescript', '--eval', here);
  assert.equal(output, 'Hello from an appcompleted\n');
});
