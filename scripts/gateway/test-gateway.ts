import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gatewayFolder, gatewayPackage, gatewayProgram } from './gateway-package.ts';

const PROJECT = join(import.meta.dirname, '..', '..');

async function run(command: string, args: readonly string[], folder: string): Promise<number> {
  const child = spawn(command, args, { cwd: folder, stdio: 'inherit' });
  const [code] = (await once(child, 'exit')) as [number | null];
  return code ?? 1;
}

const folder = gatewayFolder(process.env);
if (!existsSync(gatewayProgram(folder))) {
  const label = `${gatewayPackage.name}@${gatewayPackage.version}`;
  process.stdout.write(`${label}: installing into ${folder}\n`);
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'package.json'), '{"private":true}\n');
  // Without install scripts: nothing of what they do is needed, and nothing else should run here.
  const args = ['install', '--ignore-scripts', '--no-audit', '--no-fund', '--save-exact', '--loglevel=error', label];
  if ((await run('npm', args, folder)) !== 0) throw new Error(`npm could not install ${label}`);
}
process.exitCode = await run(
  process.execPath,
  ['--test', '--test-timeout=600000', 'test/gateway/openclaw.test.ts'],
  PROJECT,
);
