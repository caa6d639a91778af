import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { access, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { freePort } from './free-port.ts';
import { printedBlock } from './printed-blocks.ts';
import { type Scope, temporaryFolder } from './running-program.ts';
import { until } from './until.ts';

const PLACES = ['/usr/sbin/haproxy', '/usr/local/sbin/haproxy', '/usr/bin/haproxy'];

/** Starts Debian's HAProxy in front of these ports, as docs/several-machines.md configures it, and returns its URL and what it logs. */
export async function startHaproxy(
  scope: Scope,
  ports: readonly number[],
): Promise<{ readonly url: string; log(): string }> {
  const program = await installedProgram('haproxy', PLACES);
  const port = await freePort();
  const file = join(await temporaryFolder(scope), 'haproxy.cfg');
  await writeFile(file, configuration(port, ports, await printedBlock('docs/several-machines.md', 'option httpchk')));
  const child = spawn(program, ['-db', '-f', file], { stdio: ['ignore', 'ignore', 'pipe'] });
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors += text;
  });
  scope.after(() => ended(child));
  const url = `http://127.0.0.1:${port}`;
  await until('HAProxy to find its servers', async () => {
    if (child.exitCode !== null) throw new Error(`HAProxy did not start: ${errors}`);
    const response = await fetch(`${url}/healthz`).catch(() => undefined);
    return response?.status === 200;
  });
  return { url, log: () => errors };
}

/** Throws where the program is missing: a test that needs it must not pass without it. */
export async function installedProgram(name: string, places: readonly string[]): Promise<string> {
  for (const place of places) {
    const isThere = await access(place).then(
      () => true,
      () => false,
    );
    if (isThere) return place;
  }
  throw new Error(`${name} is not installed, and this test needs it: apt-get install ${name}`);
}

export async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, 'exit');
  child.kill('SIGKILL');
  await exit;
}

/** `checks` are the lines of the document that say when an instance is taken out. */
function configuration(port: number, ports: readonly number[], checks: string): string {
  return `global
  log stderr format raw daemon notice
defaults
  log global
  mode http
  balance roundrobin
  timeout connect 2s
  timeout client 1h
  timeout server 1h
  timeout tunnel 1h
${checks.replaceAll(/^/gm, '  ').trimEnd()}
frontend trestle
  bind 127.0.0.1:${port}
  default_backend instances
backend instances
${ports.map((one, index) => `  server trestle${index + 1} 127.0.0.1:${one}`).join('\n')}
`;
}
