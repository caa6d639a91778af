import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { parseSource, projectRoot } from '../architecture/source-file.ts';
import { runNode } from '../kit/run-node.ts';
import { startProgram, temporaryFolder } from '../kit/running-program.ts';
import { startScriptedGateway } from '../kit/scripted-gateway.ts';

/** Runs the example in the doc comment of every public function of `trestle/client`. */

const SOURCES = [
  'create-trestle-client.ts',
  'agent-session.ts',
  'trestle-error.ts',
  'sessions-client.ts',
  'schedules-client.ts',
  'live-client.ts',
];
/** Interfaces whose members are functions that apps call. */
const PUBLIC = [
  ...['TrestleClient', 'AgentSession', 'Jobs', 'Gateway', 'Tools'],
  ...['Sessions', 'Permissions', 'Attachments', 'Schedules', 'Live'],
];

interface Documented {
  readonly name: string;
  readonly example: string | undefined;
}

const documented: Documented[] = [];
for (const name of SOURCES) {
  const text = await readFile(`${projectRoot}src/client/${name}`, 'utf8');
  const exampleBefore = (offset: number): string | undefined => {
    const comment = /\/\*\*(?:[^*]|\*(?!\/))*\*\/\s*(?:export )?$/.exec(text.slice(0, offset))?.[0];
    const lines = comment?.replaceAll(/^ *\* ?/gm, '');
    return lines === undefined ? undefined : /@example\n```ts\n(.*?)```/s.exec(lines)?.[1];
  };
  parseSource(name, text).visit({
    TSInterfaceDeclaration({ id, body }) {
      if (!PUBLIC.includes(id.name)) return;
      for (const member of body.body) {
        if (member.type !== 'TSMethodSignature' || member.key.type !== 'Identifier') continue;
        documented.push({ name: `${id.name}.${member.key.name}`, example: exampleBefore(member.start) });
      }
    },
    FunctionDeclaration(node) {
      if (node.id?.name !== 'createTrestleClient') return;
      documented.push({ name: node.id.name, example: exampleBefore(node.start) });
    },
    ClassDeclaration(node) {
      if (node.id?.name === 'TrestleError') documented.push({ name: node.id.name, example: exampleBefore(node.start) });
    },
  });
}

const gateway = await startScriptedGateway({ after }, { answer: () => ({ sent: true }) });
const config = join(await temporaryFolder({ after }), 'trestle.yaml');
const settings = { gateway: { url: gateway.url, token: 'gateway-token-1', tools_allow: ['message'] } };
await writeFile(config, JSON.stringify(settings), { mode: 0o600 });
const program = await startProgram({ after }, { args: ['bridge', '--config', config] });
const folder = await mkdtemp(join(projectRoot, 'test/e2e/.examples-'));
after(() => rm(folder, { recursive: true }));

test('every public function of the client has an example', () => {
  assert.ok(documented.length >= 18, `${documented.length} functions`);
  assert.deepEqual(
    documented.filter(({ example }) => example === undefined).map(({ name }) => name),
    [],
  );
});

for (const { name, example = '' } of documented) {
  test(`the example of ${name} runs as printed`, async () => {
    const file = join(folder, `${name}.ts`);
    const source = `import { createTrestleClient, TrestleError } from '../../../src/client/trestle-client.ts';
const trestle = createTrestleClient({ url: '${program.url}' });
${example.replaceAll('http://127.0.0.1:8787', program.url)}
trestle.close();
void TrestleError;
`;
    await writeFile(file, source);
    const output = await runNode([file]);
    if (example.includes('console.log')) assert.match(output, /\S/);
  });
}
