import { execFile, fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { createScope } from '../../kit/create-scope.ts';
import { residentBytes } from '../../kit/resident-bytes.ts';
import { startProgram } from '../../kit/running-program.ts';
import type { FaultSuite } from '../fault-suite.ts';
import { openOperationLog } from '../operation-log.ts';
import { checkOperations, figuresOf, type Operation } from './check-operations.ts';
import type { SocketWork } from './socket-client.ts';

const SOCKETS = 10_000;
/** Files that a process needs beside its sockets. */
const OTHER_FILES = 500;
const MINUTE_MS = 60_000;
const LOOK_EVERY_MS = 1000;
const TOKEN = 'token-of-ten-thousand-sockets-0123456789';

/** Ten thousand sockets, held for so many minutes, with calls over all of them. */
export const socketsFaults: FaultSuite = async ({ cycles, say }) => {
  const files = await mostOpenFiles();
  if (files < SOCKETS + OTHER_FILES) {
    const impossible = `a process may have ${files} files open (ulimit -n), and ${SOCKETS + OTHER_FILES} are needed`;
    return { violations: [], figures: [], impossible };
  }
  const scope = createScope();
  const log = openOperationLog<Operation>('sockets');
  try {
    const program = await startProgram(scope, {
      args: ['--log-level', 'silent'],
      environment: { BRIDGE_AUTH_TOKEN: TOKEN },
    });
    const client = fork(new URL('./socket-client.ts', import.meta.url));
    scope.after(() => client.kill());
    const over = new Promise<void>((resolve, reject) => {
      client.once('exit', (code) => reject(new Error(`the client ended with ${code}`)));
      client.on('message', (operation: Operation) => {
        log.note(operation);
        if (operation.kind === 'opened') say(`${operation.count} sockets are open`);
        if (operation.kind === 'held') resolve();
      });
    });
    const work: SocketWork = { port: program.port, token: TOKEN, sockets: SOCKETS, holdMs: cycles * MINUTE_MS };
    client.send(work);
    const looking = new AbortController();
    const watched = watchMemory(program.pid, log.note, looking.signal);
    await over.finally(() => looking.abort());
    await watched;
    client.disconnect();
    await once(client, 'exit');
    await program.stop('SIGTERM');
    return await log.report({ check: checkOperations, figures: figuresOf, say });
  } finally {
    await scope.end();
  }
};

/** Node has raised its own limit as far as it may, and its children inherit that. */
export async function mostOpenFiles(): Promise<number> {
  const { stdout } = await promisify(execFile)('sh', ['-c', 'ulimit -n']);
  return stdout.trim() === 'unlimited' ? Number.POSITIVE_INFINITY : Number(stdout);
}

/** Where the system tells. */
async function watchMemory(pid: number, note: (operation: Operation) => void, over: AbortSignal): Promise<void> {
  while (!over.aborted) {
    const bytes = await residentBytes(pid);
    if (!Number.isNaN(bytes)) note({ kind: 'memory', bytes });
    await sleep(LOOK_EVERY_MS, undefined, { signal: over }).catch(() => undefined);
  }
}
