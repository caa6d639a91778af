import { createScope } from '../../kit/create-scope.ts';
import { startProgram } from '../../kit/running-program.ts';
import type { FaultSuite } from '../fault-suite.ts';
import { openOperationLog } from '../operation-log.ts';
import { checkOperations, figuresOf, type Operation } from './check-operations.ts';
import { holdSlowReaders } from './slow-readers.ts';
import { holdSlowSenders } from './slow-senders.ts';
import { startTalkativeModel } from './talkative-model.ts';

/** Between two updates of a session: the more sockets, the longer, so that the machine can carry all of them. */
const MIN_PAUSE_MS = 100;
const SOCKETS_PER_MS = 2;

/** So many sockets of which some do not read, then as many that hardly send; and others beside them that must not notice. */
export const slowFaults: FaultSuite = async ({ cycles, say }) => {
  const scope = createScope();
  const log = openOperationLog<Operation>('slow');
  const { note } = log;
  try {
    const model = await startTalkativeModel(MIN_PAUSE_MS + cycles / SOCKETS_PER_MS);
    scope.after(model.close);
    const program = await startProgram(scope, {
      args: ['bridge', '--log-level', 'silent'],
      environment: {
        TRESTLE_AGENTS_BUILTIN_BASE_URL: model.url,
        TRESTLE_AGENTS_CATALOG: 'builtin',
        TRESTLE_BRIDGE_LIMITS_STALLED_AFTER: '2s',
      },
    });
    await holdSlowReaders(program, cycles, note);
    say('the slow readers are gone');
    await holdSlowSenders(program.url, cycles, note);
    await program.stop('SIGTERM');
    return await log.report({ check: checkOperations, figures: figuresOf, say });
  } finally {
    await scope.end();
  }
};
