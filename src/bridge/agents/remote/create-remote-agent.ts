import { type Clock, deadline, onAbort } from '../../../platform/clock/clock.ts';
import type { Randomness } from '../../../platform/clock/randomness.ts';
import { readAtMost } from '../../../platform/http/bounded-fetch.ts';
import type { MakeId } from '../../../platform/ids/sortable-id.ts';
import type { Logger } from '../../../platform/log/logger.ts';
import { requestFile } from '../../artifacts/artifact-links.ts';
import { MAX_INLINE_BYTES } from '../../contract/session.ts';
import { hopHeader } from '../../forwarding/forward-headers.ts';
import type { AgentEnd, AgentProvider, AgentTurn, SupervisedTurn } from '../agent-provider.ts';
import { asObject, objectsIn, textOf } from '../agent-text.ts';
import { networkReason } from '../post-for-events.ts';
import type { ProbeResult } from '../probe-board.ts';
import type { PlacedFile } from '../prompt-content.ts';
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

/** In a row: between them pauses of five seconds at most. */
const TURN_ATTEMPTS = 6;
const SHORT_CALL_MS = 10_000;
const UPLOAD_MS = 120_000;

/** An agent on another host, behind a bridge there. Its sessions there are named by us, and the name is the reference. */
export function createRemoteAgent(options: RemoteAgentOptions): AgentProvider {
  const { id, clock, makeId, logger } = options;
  const callRemote = createRemoteConnection(options);

  async function run(turn: SupervisedTurn, signal: AbortSignal): Promise<AgentEnd> {
    const isNew = turn.reference === undefined;
    const reference = turn.reference ?? makeId('remote-');
    if (isNew) turn.opened(reference);
    const hop = turn.hop + 1;
    if (hop > options.hopLimit) return tooManyBridges(turn.hop, options.hopLimit);
    const over = new AbortController();
    const release = onAbort(signal, () => {
      void shortCall('session.cancel', { sessionId: reference }, 3, [turn.force, over.signal]);
    });
    try {
      const files = await remoteFiles(turn.files, (file) => upload(file, signal)).catch(notSent);
      if (signal.aborted) return { kind: 'cancelled' };
      if ('error' in files) return { kind: 'failed', code: 'AGENT_FAILED', error: files.error };
      const reply = await callRemote({
        method: isNew ? 'session.start' : 'session.message',
        params: { ...turnParams(options, reference, turn), ...files, ...(isNew && serversOf(turn)) },
        key: turn.turnId,
        resumable: true,
        attempts: TURN_ATTEMPTS,
        signal: turn.force,
        hop,
        onUpdate(params) {
          const event = params.sessionId === reference ? readUpdate(params) : undefined;
          return event && turn.report(event);
        },
      });
      if (reply.kind === 'result') turn.usedModel(textOf(reply.result.resolvedModel));
      const end = readTurnEnd(reply, `agent.${id}`);
      // There is nothing yet that could have been lost.
      return isNew && end.kind === 'lost' ? { kind: 'failed', code: 'AGENT_FAILED', error: end.detail } : end;
    } finally {
      release();
      over.abort();
    }
  }

  /** Sends a file that is too large for a call ahead of it. */
  async function upload({ name, contentType, read }: PlacedFile, stop: AbortSignal): Promise<string> {
    const { signal, release } = deadline(clock, UPLOAD_MS, [stop]);
    try {
      const response = await fetch(new URL('api/bridge/attachments', `${options.url.replace(/\/$/, '')}/`), {
        method: 'POST',
        headers: {
          ...authorizationOf(options.token),
          'content-type': contentType,
          'x-file-name': encodeURIComponent(name),
        },
        body: await read(),
        redirect: 'error',
        signal,
      });
      const { attachmentId, message } = asObject(JSON.parse(String((await readAtMost(response.body)) ?? '{}')));
      if (response.ok && typeof attachmentId === 'string') return attachmentId;
      throw new Error(`it answered ${textOf(message) || `with status ${response.status}`}`);
    } finally {
      release();
    }
  }

  /** A call that is over soon, or given up. */
  async function shortCall(method: string, params: object, attempts: number, outer: readonly AbortSignal[] = []) {
    const { signal, release } = deadline(clock, SHORT_CALL_MS, outer);
    try {
      return await callRemote({ method, params, key: makeId('call-'), resumable: false, attempts, signal, hop: 1 });
    } finally {
      release();
    }
  }

  return {
    id,
    async probe(signal) {
      return readCapabilities(await shortCall('acp.capabilities', {}, 1, [signal]));
    },
    run,
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
    stop: () => Promise.resolve(),
  };
}

/** Ends a circle of bridges whose agents are each other's. */
function tooManyBridges(passed: number, limit: number): AgentEnd {
  const error = `The call has passed ${passed} bridges, and distributed.forwarding.hop_limit is ${limit}: look for an agent whose url leads back to a bridge that the call came from, or raise the limit.`;
  return { kind: 'failed', code: 'AGENT_FAILED', error };
}

/** Files travel in the call; where they are too large for that, they are sent ahead. */
async function remoteFiles(
  files: readonly PlacedFile[] = [],
  upload: (file: PlacedFile) => Promise<string>,
): Promise<{ readonly attachments?: readonly object[] }> {
  if (files.length === 0) return {};
  const isSmall = files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0) <= MAX_INLINE_BYTES;
  const attachments: object[] = [];
  for (const file of files) {
    const { kind, name, contentType, path, read } = file;
    if (kind === 'unsent') attachments.push({ name, path });
    else if (isSmall) attachments.push({ name, contentType, data: (await read()).toString('base64') });
    else attachments.push({ attachmentId: await upload(file) });
  }
  return { attachments };
}

function notSent(error: unknown): { readonly error: string } {
  return { error: `The attachments could not be sent to the agent: ${networkReason(error)}.` };
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
      ...(turn.isReadOnly === true && { permissions: 'deny' }),
    },
  };
}

/** The other bridge keeps them with its session. One that does not know the member ignores it. */
function serversOf({ mcpServers = [] }: AgentTurn): { readonly mcpServers?: AgentTurn['mcpServers'] } {
  return mcpServers.length === 0 ? {} : { mcpServers };
}

/** Usable when one of the agents there is. */
function readCapabilities(reply: RemoteReply): ProbeResult {
  if (reply.kind === 'aborted') return { status: 'failed: timed out', version: '' };
  if (reply.kind !== 'result') {
    const reason = reply.kind === 'error' ? reply.message : reply.reason;
    return { status: `failed: ${reason.slice(0, 80)}`, version: '' };
  }
  const { providerProbeSummary: probes, providerCatalog: catalog } = reply.result;
  const available = objectsIn(probes).find((probe) => probe.available === true);
  if (available === undefined) {
    return { status: `failed: ${textOf(objectsIn(probes)[0]?.status).slice(0, 80) || 'no agent there'}`, version: '' };
  }
  const entry = objectsIn(catalog).find(({ providerId }) => providerId === available.providerId);
  return { status: 'ok', version: textOf(entry?.version).slice(0, 40) };
}
