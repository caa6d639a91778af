import { createHash } from 'node:crypto';
import { boundedFetch } from '../../platform/http/bounded-fetch.ts';
import { retry } from '../../platform/retry/retry.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import { usdOfNano } from '../apis/prices.ts';
import type { BudgetAlert } from '../keys/budgets.ts';
import type { CompletionsSettings } from '../settings.ts';

export interface BudgetAlerts {
  /** Writes a line into the log, and tells the operator's address where there is one. */
  tell(alert: BudgetAlert): void;
  /** Gives what is under way a moment, then ends it. */
  stop(): Promise<void>;
}

interface BudgetAlertsOptions extends Pick<Runtime, 'clock' | 'randomness' | 'logger'> {
  readonly settings: CompletionsSettings['alerts'];
}

/** Alerts that wait to be sent. More than these are only in the log. */
const MAX_WAITING = 100;
const TIMEOUT_MS = 10_000;
const MAX_ANSWER_BYTES = 64 * 1024;
const RETRIES = { attempts: 4, baseMs: 1000, maxMs: 30_000 };
const STOP_MS = 2000;

export function createBudgetAlerts({ settings, clock, randomness, logger }: BudgetAlertsOptions): BudgetAlerts {
  const { url, token } = settings;
  const stopped = new AbortController();
  let waiting = 0;
  /** One after the other, so that an address that does not answer gets one request at a time. */
  let last: Promise<void> = Promise.resolve();

  async function send(body: string, id: string): Promise<void> {
    const headers = {
      'content-type': 'application/json',
      // The same for every try and from every instance, so that a repetition can be recognised.
      'idempotency-key': id,
      ...(token !== '' && { authorization: `Bearer ${token}` }),
    };
    const attempt = async (): Promise<void> => {
      const init = { method: 'POST', headers, body, signal: stopped.signal, redirect: 'manual' } as const;
      const { status } = await boundedFetch(url, init, { maxBytes: MAX_ANSWER_BYTES, timeoutMs: TIMEOUT_MS });
      if (status < 200 || status > 299) throw new Error(`it answered with status ${status}`);
    };
    await retry(attempt, { ...RETRIES, clock, randomness, signal: stopped.signal });
  }

  return {
    tell(told) {
      const { bucket, percent, spentNano, usd, period } = told;
      const alert = { bucket, percent, spent_usd: usdOfNano(spentNano), budget_usd: usd, period };
      logger.warn(alert, 'a budget is spent to this part');
      if (url === '' || stopped.signal.aborted) return;
      if (waiting >= MAX_WAITING) {
        logger.warn({ bucket, percent }, 'an alert was not sent: too many wait');
        return;
      }
      waiting += 1;
      const id = idOf(told);
      const body = JSON.stringify({ type: 'budget.alert', id, at: new Date(clock.now()).toISOString(), ...alert });
      last = last
        .then(() => send(body, id))
        .catch((error: unknown) => logger.warn({ err: error, bucket, percent }, 'an alert was not sent'))
        .finally(() => {
          waiting -= 1;
        });
    },
    async stop() {
      const forget = clock.after(STOP_MS, () => stopped.abort());
      await last;
      forget();
      stopped.abort();
    },
  };
}

function idOf({ bucket, period, usd, percent }: BudgetAlert): string {
  const what = JSON.stringify([bucket, period, usd, percent]);
  return `alr_${createHash('sha256').update(what).digest('base64url').slice(0, 22)}`;
}
