import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { projectRoot } from '../architecture/source-file.ts';
import { startProgram } from '../e2e/running-program.ts';

const { url } = await startProgram({ after }, { args: ['completions'] });
const page = readFileSync(`${projectRoot}docs/clients.md`, 'utf8');

for (const section of page.split(/^## /m).slice(1)) {
  const code = /^```ts\n(.*?)^```/ms.exec(section)?.[1];
  if (code === undefined) continue;
  const title = section.slice(0, section.indexOf('\n'));
  test(`the example for ${title} in docs/clients.md prints what it says`, { timeout: 60_000 }, async () => {
    const greetings = code.match(/Hello from \w+/g) ?? [];
    assert.ok(greetings.length > 0);
    const output = await run(code.replaceAll('http://127.0.0.1:8787', url));
    for (const greeting of greetings) assert.ok(output.includes(greeting), output);
  });
}

/** As a module of the project, so that it finds the packages. */
async function run(code: string): Promise<string> {
  const { PATH = '' } = process.env;
  const child = spawn(process.execPath, ['--input-type=module-typescript', '--eval', code], {
    cwd: projectRoot,
    env: { PATH },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const output: string[] = [];
  child.stdout.setEncoding('utf8').on('data', (text: string) => output.push(text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => output.push(text));
  const [status] = (await once(child, 'close')) as [number | null];
  assert.equal(status, 0, output.join(''));
  return output.join('');
}
