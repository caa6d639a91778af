import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, type TestContext, test } from 'node:test';
import { isListed, type PrintedDocument, printedDocuments } from '../kit/printed-blocks.ts';
import { type Place, runDocument } from '../kit/run-document.ts';
import { temporaryFolder } from '../kit/running-program.ts';
import { cleanEnvironment, installPackage, pinnedNodeFolder } from './run-command.ts';

/** Runs every block of all documents as printed, with the installed package and nothing of the checkout. */

const installed = mkdtempSync(join(tmpdir(), 'trestle-documents-'));
/** What the commands of a checkout are for an installed program. */
const SCRIPTS = { start: 'trestle serve', trestle: 'trestle' };

before(() => installPackage(installed));
after(() => rmSync(installed, { recursive: true, force: true }));

for (const document of (await printedDocuments()).map(ofInstalled)) {
  if (document.blocks.every(isListed)) continue;
  test(`DU-2: every block of ${document.name} runs with the installed package`, { timeout: 500_000 }, async (t) =>
    runDocument(t, document, await place(t)),
  );
}

/** `openai` is a package that the checkout has, and an app may have: test/e2e/documents.test.ts runs its block. */
function ofInstalled(document: PrintedDocument): PrintedDocument {
  return { ...document, blocks: document.blocks.filter(({ text }) => !text.includes("from 'openai'")) };
}

async function place(t: TestContext): Promise<Place> {
  const folder = await temporaryFolder(t);
  mkdirSync(join(folder, 'bin'));
  symlinkSync(join(installed, 'node_modules/.bin/trestle'), join(folder, 'bin/trestle'));
  symlinkSync(join(installed, 'node_modules'), join(folder, 'node_modules'));
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ name: 'app', private: true, scripts: SCRIPTS }));
  const { PATH = '' } = cleanEnvironment([join(folder, 'bin'), pinnedNodeFolder]);
  return { folder, path: PATH, client: 'trestle/client' };
}
