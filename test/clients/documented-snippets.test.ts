import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { projectRoot } from '../architecture/source-file.ts';
import { runNode } from '../kit/run-node.ts';
import { startProgram } from '../kit/running-program.ts';

const { url } = await startProgram({ after }, { args: ['completions'] });
const page = readFileSync(`${projectRoot}docs/clients.md`, 'utf8');

for (const section of page.split(/^## /m).slice(1)) {
  const code = /^```ts\n(.*?)^```/ms.exec(section)?.[1];
  if (code === undefined) continue;
  const title = section.slice(0, section.indexOf('\n'));
  test(`the example for ${title} in docs/clients.md prints what it says`, { timeout: 60_000 }, async () => {
    const greetings = code.match(/Hello from \w+/g) ?? [];
    assert.ok(greetings.length > 0);
    // As a module of this folder, so that it finds the packages.
    const args = ['--input-type=module-typescript', '--eval', code.replaceAll('http://127.0.0.1:8787', url)];
    const output = await runNode(args, {}, 'test/clients');
    for (const greeting of greetings) assert.ok(output.includes(greeting), output);
  });
}
