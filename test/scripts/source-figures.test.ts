import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { sourceFigures } from '../../scripts/source-figures.ts';

test('files, lines, imports and packages of a checkout are counted, without the console', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'figures-'));
  t.after(() => rm(folder, { recursive: true }));
  const write = async (path: string, text: string) => {
    await mkdir(dirname(join(folder, path)), { recursive: true });
    await writeFile(join(folder, path), text);
  };
  await write('src/a.ts', "import {\n  b,\n} from './b.ts';\nimport { c } from './c.ts';\n\nexport const a = b + c;\n");
  await write('src/b.ts', "import { c } from './c.ts';\n\nexport const b = c;\n");
  await write('src/c.ts', `${'// line\n'.repeat(50)}export const c = 1;\n`);
  await write('src/console/page.ts', 'export const page = 1;\n');
  await write(
    'package-lock.json',
    JSON.stringify({
      packages: { '': { dependencies: { one: '1' } }, 'n/one': {}, 'n/two': {}, 'n/dev': { dev: true } },
    }),
  );
  assert.deepEqual(sourceFigures(folder), {
    files: 3,
    lines: 60,
    median: 6,
    p90: 51,
    longest: 51,
    smallShare: 2 / 3,
    importShare: 5 / 60,
    oneImporter: 1,
    dependencies: 1,
    packages: 2,
  });
});
