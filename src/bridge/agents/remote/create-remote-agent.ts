import { type Clock, deadline, withinTime } from '../../../platform/clock/clock.ts';
import type { Randomness } from '../../../platform/clock/randomness.ts';
import type { MakeId } from '../../../platform/ids/sortable-id.ts';
import type { Logger } from '../../../platform/log/logger.ts';
import { requestFile } from '../../artifacts/artifact-links.ts';
import { hopHeader } from '../../forwarding/forward-headers.ts';
import type { AgentProvider, AgentTurn, TurnEnd } from '../agent-provider.ts';
import { asObject, createFinalText, textOf } from '../agent-text.ts';
import type { ProbeResult } from '../probe-board.ts';
import {
  authorizationOf,
  createRemoteConnection,
  type RemoteConnectionOptions,
  type RemoteReply,
} from './remote-connection.ts';
import { readTurnEnd, readUpdate } from './remote-messages.ts';

export interface RemoteAgentOptions {
  readonly id: string;
  /** Of another bridge, or of `trestle adapter NAME`. */
  readonly url: string;
  /** Empty: none is sent. */
  readonly token: string;
  readonly clock: Pick<Clock, 'after'>;
  readonly randomness: Pick<Randomness, 'below'>;
  readonly makeId: MakeId;
  readonly logger: Pick<Logger, 'warn'>;
  /**
   * True for a folder that our bridge made itself because the app named none: the other side makes its own. Any other
   * folder is handed on, and must exist there too.
   */
  isScratchFolder(path: string): boolean;
  /** How many bridges a call may pass (`distributed.forwarding.hop_limit`). */
  readonly hopLimit: number;
  readonly limits?: RemoteConnectionOptions['limits'];
}

interface RunningTurn {
  readonly reference: string;
  readonly aborter: AbortController;
  readonly ended: Promise<unknown>;
}

/** In a row: between them pauses of five seconds at most. */
const TURN_ATTEMPTS = 6;
const SHORT_CALL_MS = 10_000;
/** How long the other bridge may take to end a cancelled turn, of the five seconds in all. */
const CANCEL_MS = 4_000;

/** An agent on another host, behind a bridge there. Its sessions there are named by us, and the name is the reference. */
export function createRemoteAgent(options: RemoteAgentOptions): AgentProvider {
  const { id, clock, makeId, logger } = options;
  const callRemote = createRemoteConnection(options);
  const running = new Map<string, RunningTurn>();

  async function runTurn(method: string, reference: string, turn: AgentTurn): Promise<TurnEnd> {
    const hop = turn.hop + 1;
    if (hop > options.hopLimit) return tooManyBridges(turn.hop, options.hopLimit);
    const aborter = new AbortController();
    const said = createFinalText();
    const reply = callRemote({
      method,
      params: turnParams(options, reference, turn),
      key: turn.turnId,
      resumable: true,
      attempts: TURN_ATTEMPTS,
      signal: aborter.signal,
      hop,
      onUpdate(params) {
        if (params.sessionId !== reference) return undefined;
        const event = readUpdate(params);
        if (event === undefined) return undefined;
        said.add(event);
        return turn.report(event);
      },
    });
    running.set(turn.turnId, { reference, aborter, ended: reply });
    try {
      const answered = await reply;
      if (answered.kind === 'result') turn.usedModel(textOf(answered.result.resolvedModel));
      return readTurnEnd(answered, said.value(), `agent.${id}`);
    } finally {
      running.delete(turn.turnId);
    }
  }

  /** A call that is over soon, or given up. */
  async function shortCall(method: string, params: object, attempts: number, outer?: AbortSignal) {
    const { signal, release } = deadline(clock, SHORT_CALL_MS, outer === undefined ? [] : [outer]);
    try {
      return await callRemote({ method, params, key: makeId('call-'), resumable: false, attempts, signal, hop: 1 });
    } finally {
      release();
    }
  }

  async function cancelTurns(turns: readonly RunningTurn[]): Promise<void> {
    await Promise.all(
      turns.map(async ({ reference, aborter, ended }) => {
        const cancelled = shortCall('session.cancel', { sessionId: reference }, 3, aborter.signal).then(() => ended);
        await withinTime(clock, CANCEL_MS, cancelled, () => undefined);
        aborter.abort();
        await ended;
      }),
    );
  }

  return {
    id,
    async probe(signal) {
      return readCapabilities(await shortCall('acp.capabilities', {}, 1, signal));
    },
    async startTurn(turn) {
      const reference = makeId('remote-');
      turn.opened(reference);
      const end = await runTurn('session.start', reference, turn);
      // There is nothing yet that could have been lost.
      return end.kind === 'lost' ? { kind: 'failed', code: 'AGENT_FAILED', error: end.detail, output: '' } : end;
    },
    continueTurn: (reference, turn) => runTurn('session.message', reference, turn),
    async cancel(turnId) {
      const turn = running.get(turnId);
      if (turn !== undefined) await cancelTurns([turn]);
    },
    async close(reference, closing) {
      const reply = await shortCall('session.close', { sessionId: reference }, 3);
      if (reply.kind === 'result') return;
      closing?.left('the session could not be closed at the remote agent');
      logger.warn({ agent: id, reference }, 'a session of a remote agent was not closed there');
    },
    download: (path, signal) =>
      requestFile({
        url: `${options.url.replace(/\/$/, '')}${path}`,
        headers: { ...authorizationOf(options.token), ...hopHeader(1) },
        place: id,
        signal,
      }),
    stop: () => cancelTurns([...running.values()]),
  };
}

/** Ends a circle of bridges whose agents are each other's. */
function tooManyBridges(passed: number, limit: number): TurnEnd {
  const error = `The call has passed ${passed} bridges, and distributed.forwarding.hop_limit is ${limit}: look for an agent whose url leads back to a bridge that the call came from, or raise the limit.`;
  return { kind: 'failed', code: 'AGENT_FAILED', error, output: '' };
}

function turnParams({ isScratchFolder }: RemoteAgentOptions, reference: string, turn: AgentTurn): object {
  const { workingDirectory, model, skills } = turn;
  return {
    sessionId: reference,
    threadId: reference,
    taskPrompt: turn.prompt,
    ...(!isScratchFolder(workingDirectory) && { workingDirectory }),
    routing: {
      ...(model !== '' && { explicitModel: model }),
      ...(skills.length > 0 && { explicitSkills: skills, availableSkills: skills }),
    },
  };
}

/** Usable when one of the agents there is. */
function readCapabilities(reply: RemoteReply): ProbeResult {
  if (reply.kind === 'aborted') return { status: 'failed: timed out', version: '' };
  if (reply.kind !== 'result') {
    const reason = reply.kind === 'error' ? reply.message : reply.reason;
    return { status: `failed: ${reason.slice(0, 80)}`, version: '' };
  }
  const { providerProbeSummary: probes, providerCatalog: catalog } = reply.result;
  const available = listOf(probes).find((probe) => probe.available === true);
  if (available === undefined) {
    return { status: `failed: ${textOf(listOf(probes)[0]?.status).slice(0, 80) || 'no agent there'}`, version: '' };
  }
  const entry = listOf(catalog).find(({ providerId }) => providerId === available.providerId);
  return { status: 'ok', version: textOf(entry?.version).slice(0, 40) };
}

function listOf(value: unknown): readonly Readonly<Record<string, unknown>>[] {
  return Array.isArray(value) ? value.map(asObject) : [];
}
