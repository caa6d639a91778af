import { withinTime } from '../../platform/clock/clock.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { AgentProvider, AgentTurn, TurnEnd } from '../agents/agent-provider.ts';
import { asObject } from '../agents/agent-text.ts';
import type { GatewayLink } from './gateway-link.ts';
import { describeGatewayFailure } from './gateway-messages.ts';
import { createGatewayRun, type GatewayRun, gatewayFailure, type RunLimits } from './gateway-run.ts';

export interface GatewayAgentOptions extends Pick<Runtime, 'clock' | 'makeId' | 'logger'> {
  readonly id: string;
  readonly link: GatewayLink;
  readonly limits?: Partial<RunLimits>;
}

const SHORT_CALL_MS = 15_000;
/** How long the gateway may take to end a cancelled turn, of the five seconds in all. */
const CANCEL_MS = 4_000;

/** Gateway tasks, seen by the sessions as turns of one more agent. The reference is the session's name at the gateway. */
export function createGatewayAgent(options: GatewayAgentOptions): AgentProvider {
  const { id, link, clock, makeId, logger } = options;
  const running = new Map<string, { readonly run: GatewayRun; readonly ended: Promise<unknown> }>();

  /** The gateway is asked whether it can be reached at all before anything is begun. */
  async function reach(): Promise<TurnEnd | undefined> {
    try {
      await link.connect();
      return undefined;
    } catch (error) {
      return { kind: 'failed', code: 'GATEWAY_UNAVAILABLE', error: describeGatewayFailure(error).message, output: '' };
    }
  }

  /** Known from its first moment on, so that a cancel finds it while the gateway is still being reached. */
  async function runTurn(sessionKey: string, turn: AgentTurn, prepare: () => Promise<TurnEnd | undefined>) {
    const run = createGatewayRun({ ...options, sessionKey, turn });
    const ended = (async (): Promise<TurnEnd> => {
      const obstacle = (await reach()) ?? (await prepare());
      if (run.isAborted()) return { kind: 'cancelled', output: '' };
      return obstacle ?? run.run();
    })();
    running.set(turn.turnId, { run, ended });
    try {
      return await ended;
    } finally {
      running.delete(turn.turnId);
    }
  }

  /** Checks that the gateway knows the session, because a message would open a new one silently. */
  async function isKnown(sessionKey: string): Promise<boolean> {
    const { messages } = asObject(await link.request('chat.history', { sessionKey, limit: 1 }, SHORT_CALL_MS));
    return Array.isArray(messages) && messages.length > 0;
  }

  async function stopRuns(runs: Iterable<{ readonly run: GatewayRun; readonly ended: Promise<unknown> }>) {
    await Promise.all(
      [...runs].map(async ({ run, ended }) => {
        await withinTime(clock, CANCEL_MS, Promise.all([run.abort(), ended]), () => undefined);
        run.giveUp();
        await ended;
      }),
    );
  }

  return {
    id,
    probe: link.probe,
    startTurn(turn) {
      const sessionKey = makeId('trestle-');
      return runTurn(sessionKey, turn, async () => {
        turn.opened(sessionKey);
        return undefined;
      });
    },
    continueTurn: (sessionKey, turn) =>
      runTurn(sessionKey, turn, async () => {
        try {
          if (await isKnown(sessionKey)) return undefined;
          return { kind: 'lost', detail: 'the gateway has no such session' };
        } catch (error) {
          return gatewayFailure(error);
        }
      }),
    async cancel(turnId) {
      const found = running.get(turnId);
      if (found !== undefined) await stopRuns([found]);
    },
    async close(sessionKey, closing) {
      // To delete it would take the rights of an administrator; archived, it no longer shows up there.
      await link
        .request('sessions.patch', { key: sessionKey, archived: true }, SHORT_CALL_MS)
        .then(() => closing?.left('the gateway has archived the session, and not deleted it'))
        .catch((error: unknown) => {
          closing?.left('the gateway could not archive the session');
          logger.warn(
            { gateway: id, code: describeGatewayFailure(error).code },
            'a gateway session was not closed there',
          );
        });
    },
    async stop() {
      await stopRuns(running.values());
      await link.stop();
    },
  };
}
