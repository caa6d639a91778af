import type { Clock } from '../clock/clock.ts';
import { withinTime } from '../clock/within-time.ts';
import type { Logger } from '../log/logger.ts';

/** Resolves when what it looks at is fit for work, rejects when not. */
export type ReadinessCheck = () => unknown;

export interface ReadinessReport {
  readonly ready: boolean;
  readonly checks: Readonly<Record<string, CheckResult>>;
}

export type CheckResult = 'ok' | 'failed' | 'timeout';

export interface ReadinessOptions {
  readonly checks: Readonly<Record<string, ReadinessCheck>>;
  readonly timeoutMs: number;
  readonly clock: Pick<Clock, 'after'>;
  readonly logger: Logger;
}

/** Asks all checks at once, each within the time limit. Whoever asks while they are being asked gets the same answer. */
export function createReadiness(options: ReadinessOptions): () => Promise<ReadinessReport> {
  let running: Promise<ReadinessReport> | undefined;
  return () => {
    running ??= askAll(options).finally(() => {
      running = undefined;
    });
    return running;
  };
}

async function askAll({ checks, timeoutMs, clock, logger }: ReadinessOptions): Promise<ReadinessReport> {
  const results = await Promise.all(
    Object.entries(checks).map(async ([name, check]): Promise<[string, CheckResult]> => {
      const asked = Promise.resolve()
        .then(check)
        .then(
          (): CheckResult => 'ok',
          (error): CheckResult => {
            logger.warn({ err: error, check: name }, 'a readiness check failed');
            return 'failed';
          },
        );
      return [name, await withinTime(clock, timeoutMs, asked, (): CheckResult => 'timeout')];
    }),
  );
  return { ready: results.every(([, result]) => result === 'ok'), checks: Object.fromEntries(results) };
}
