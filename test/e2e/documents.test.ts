import assert from 'node:assert/strict';
import { chmod, mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { isListed, LISTED, printedDocuments, wayOf } from '../kit/printed-blocks.ts';
import { type Place, runDocument } from '../kit/run-document.ts';
import { temporaryFolder } from '../kit/running-program.ts';

/** Runs every block of all documents as printed, each document in a fresh folder that looks like a checkout. */

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const documents = await printedDocuments();

for (const document of documents) {
  if (document.blocks.every(isListed)) continue;
  test(`DU-2: every block of ${document.name} runs as printed`, { timeout: 500_000 }, async (t) =>
    runDocument(t, document, await checkout(t)),
  );
}

test('DU-2: every block is run, or listed with the reason why not', () => {
  const blocks = documents.flatMap((document) => document.blocks);
  const left = blocks.filter((block) => wayOf(block) === undefined && !isListed(block));
  assert.deepEqual(
    left.map(({ document, line }) => `${document}:${line}`),
    [],
  );
  assert.ok(blocks.length - blocks.filter(isListed).length > 100, 'blocks are found');
});

test('DU-2: every row of the list is still needed', () => {
  for (const [name, part] of LISTED) {
    const blocks = documents.find((document) => document.name === name)?.blocks ?? [];
    assert.ok(
      blocks.some(({ text }) => text.includes(part)),
      `${name}: ${part}`,
    );
  }
});

/** A folder in which npm and the sources are found as in a checkout, and nothing else. */
async function checkout(t: TestContext): Promise<Place> {
  const folder = await temporaryFolder(t);
  for (const name of ['package.json', '.npmrc', 'node_modules', 'scripts', 'src', 'examples']) {
    await symlink(join(ROOT, name), join(folder, name));
  }
  await mkdir(join(folder, 'bin'));
  const command = join(folder, 'bin/trestle');
  await writeFile(command, `#!/bin/sh\nexec node '${ROOT}scripts/run.cjs' '${ROOT}src/main.ts' "$@"\n`);
  await chmod(command, 0o755);
  return {
    folder,
    path: `${folder}/bin:${ROOT}node_modules/.bin:${process.env.PATH ?? ''}`,
    client: `${ROOT}src/client/trestle-client.ts`,
  };
}
