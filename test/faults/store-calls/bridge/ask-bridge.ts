import { setTimeout } from 'node:timers/promises';
import { Compile } from 'typebox/schema';
import { RpcError } from '../../../../src/bridge/contract/surface.ts';
import { bridgeErrors } from '../../../../src/bridge/errors.ts';
import type { ErrorTable } from '../../../../src/platform/errors/error-table.ts';
import { type Envelope, postRpc } from '../../../kit/bridge/bridge-client.ts';
import type { Headers } from '../../../kit/bridge/session-client.ts';
import type { FakeClock } from '../../../kit/fake-clock.ts';
import { passUntil } from '../pass-until.ts';
import type { Asked } from '../scenario.ts';

export type AskBridge = (
  method: string,
  params: object,
  headers?: Headers,
) => Promise<Asked<Readonly<Record<string, unknown>>>>;

const documented = Compile(RpcError);
const PATIENCE_MS = 150;
const MOMENT_MS = 30;

/** Calls the bridge, and looks whether a refusal is as it is documented. Time passes while no answer comes. */
export function createAskBridge(url: string, clock: FakeClock): AskBridge {
  return async (method, params, headers = {}) => {
    const { json } = await passing(clock, postRpc(url, { jsonrpc: '2.0', id: 1, method, params }, headers));
    return readAnswer(json);
  };
}

/** A turn that did not end well is a refusal too. */
export function readAnswer(answer: Envelope): Asked<Readonly<Record<string, unknown>>> {
  const { result, error } = answer;
  if (result !== undefined) {
    const { status, code } = result as { readonly status?: string; readonly code?: string };
    const isBad = status !== undefined && ['failed', 'cancelled', 'unavailable'].includes(status) && 'turnId' in result;
    return isBad ? { code: (code ?? status).toLowerCase(), problems: [] } : { told: result, code: '', problems: [] };
  }
  const code = String(error?.data.code);
  const table: ErrorTable = bridgeErrors;
  const row = Object.hasOwn(table, code) ? table[code] : undefined;
  const isRight = documented.Check(answer) && row?.rpc === error?.code && code !== 'INTERNAL_ERROR';
  return { code: code.toLowerCase(), problems: isRight ? [] : [`it is not documented: ${JSON.stringify(error)}`] };
}

/** What could not be stored is stored after a while; the session is busy until then, and for a moment more. */
export async function passUntilStored(clock: FakeClock, isStored: () => Promise<boolean>): Promise<void> {
  await passUntil(clock, 2000, 'everything to be stored', isStored).catch(() => undefined);
  await setTimeout(MOMENT_MS);
}

/** What waits for a time of the bridge's own gets it. */
export async function passing<Result>(clock: FakeClock, result: Promise<Result>): Promise<Result> {
  const timer = setInterval(() => void clock.advance(1000), PATIENCE_MS);
  try {
    return await result;
  } finally {
    clearInterval(timer);
  }
}
