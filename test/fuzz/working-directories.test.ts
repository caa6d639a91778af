import assert from 'node:assert/strict';
import { mkdir, realpath, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { createPrivatePlaces } from '../../src/bridge/sessions/private-places.ts';
import { createOwnerRoots, createWorkingDirectories } from '../../src/bridge/sessions/working-directory.ts';
import { AppError } from '../../src/platform/errors/app-error.ts';
import fc from '../kit/properties.ts';
import { temporaryFolder } from '../kit/running-program.ts';
import { anyText, runs } from './any-input.ts';

test('G18: whatever path is asked for, an agent works inside the roots or not at all', async (t) => {
  const folder = await realpath(await temporaryFolder(t));
  const [root, data] = [join(folder, 'root'), join(folder, 'root', 'data')];
  await mkdir(join(root, 'inner', 'deep'), { recursive: true });
  await mkdir(join(data, 'scratch'), { recursive: true });
  await mkdir(join(folder, 'root-beside'));
  await writeFile(join(root, 'file'), '');
  await symlink(folder, join(root, 'out'));
  await symlink(data, join(root, 'inner', 'secrets'));
  await symlink('/', join(root, 'slash'));
  const directories = createWorkingDirectories({
    roots: createOwnerRoots({ listed: [root] }),
    dataDirectory: data,
    places: createPrivatePlaces({ folders: [data], files: [] }),
  });

  const part = fc.oneof(
    fc.constantFrom('inner', 'deep', 'out', 'slash', 'secrets', 'file', 'root', 'root-beside', 'data', 'scratch'),
    fc.constantFrom('..', '.', '', '~', 'etc', 'tmp'),
    anyText,
  );
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(root, folder, '', '/', '.', `${root}-beside`),
      fc.array(part, { maxLength: 6 }),
      async (start, parts) => {
        const asked = [start, ...parts].join('/');
        const real = await directories.check(asked).catch((error: unknown) => {
          assert.ok(error instanceof AppError && error.code === 'WORKING_DIRECTORY_REFUSED', String(error));
          return undefined;
        });
        if (real === undefined) return;
        assert.ok(real === root || real.startsWith(`${root}/`), `${asked} leads to ${real}`);
        assert.ok(real !== data && !real.startsWith(`${data}/`), `${asked} leads to our own ${real}`);
        assert.equal(await realpath(real), real);
      },
    ),
    runs(300),
  );
});
