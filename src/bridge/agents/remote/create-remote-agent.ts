import { Check } from 'typebox/value';
import { type Clock, deadline, onAbort, pause } from '../../../platform/clock/clock.ts';
import type { Randomness } from '../../../platform/clock/randomness.ts';
import { boundedFetch, readAtMost } from '../../../platform/http/bounded-fetch.ts';
import type { MakeId } from '../../../platform/ids/sortable-id.ts';
import type { Logger } from '../../../platform/log/logger.ts';
import { RUNNER_MARK, requestFile } from '../../artifacts/artifact-links.ts';
import { MAX_INLINE_BYTES } from '../../contract/session.ts';
import { QuestionEvent, type QuestionForm } from '../../contract/session-update.ts';
import { hopHeader } from '../../forwarding/call-node.ts';
import { isOurs } from '../../sessions/mcp-servers.ts';
import type {
  AgentAbilities,
  AgentEnd,
  AgentEvent,
  AgentProvider,
  AgentTurn,
  Fork,
  Forked,
  SupervisedTurn,
} from '../agent-provider.ts';
import { asObject, objectsIn, textOf } from '../agent-text.ts';
import { networkReason, readMessage } from '../post-for-events.ts';
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
  readonly through?: RemoteConnectionOptions['through'];
  /** Of a runner: its id, and the agent there. */
  readonly runner?: { readonly id: string; readonly agent: string };
  /** The name of a new conversation. Undefined: a new id. */
  nameFor?(turn: AgentTurn): string | undefined;
}

/** In a row: between them pauses of five seconds at most. */
const TURN_ATTEMPTS = 6;
const SHORT_CALL_MS = 10_000;
const UPLOAD_MS = 120_000;
/** The agent there may have to start for it. */
const FORK_MS = 60_000;
const ANSWER_ATTEMPTS = 5;
const ANSWER_PAUSE_MS = 1000;
/** Questions of one turn; others are answered on the other bridge. */
const MAX_QUESTIONS = 1000;
/** Messages to one turn that the other bridge has not told yet. */
const MAX_STEERED = 64;

/** An agent on another host, behind a bridge there. Its sessions there are named by us, and the name is the reference. */
export function createRemoteAgent(options: RemoteAgentOptions): AgentProvider {
  const { id, clock, makeId, logger } = options;
  const callRemote = createRemoteConnection(options);
  const base = `${options.url.replace(/\/$/, '')}/api/bridge`;
  const place = options.runner === undefined ? id : `${id}${RUNNER_MARK}${options.runner.id}`;
  let abilities = NO_ABILITIES;

  async function run(turn: SupervisedTurn, signal: AbortSignal): Promise<AgentEnd> {
    const isNew = turn.reference === undefined;
    const reference = turn.reference ?? options.nameFor?.(turn) ?? makeId('remote-');
    if (isNew) turn.opened(reference);
    const hop = turn.hop + 1;
    if (hop > options.hopLimit) return tooManyBridges(turn.hop, options.hopLimit);
    const over = new AbortController();
    const steering = createSteering((text) => steer(reference, text), turn.steerable);
    const questions = createQuestions(turn, (permissionId, body) => answer(permissionId, body, over.signal));
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
        withQuestions: turn.asks === true,
        onUpdate(params) {
          if (params.sessionId !== reference) return undefined;
          steering.begun();
          if (questions.take(params)) return undefined;
          const event = readUpdate(params);
          return event && !steering.isOwn(event) ? turn.report(event) : undefined;
        },
      });
      if (reply.kind === 'result') turn.usedModel(textOf(reply.result.resolvedModel));
      const end = readTurnEnd(reply, `agent.${place}`, options.runner !== undefined);
      // There is nothing yet that could have been lost.
      return isNew && end.kind === 'lost' ? { kind: 'failed', code: 'AGENT_FAILED', error: end.detail } : end;
    } finally {
      release();
      over.abort();
      questions.end();
    }
  }

  /** Tries again while the other bridge cannot be reached: a question without an answer holds up the turn there. */
  async function answer(permissionId: string, body: object, signal: AbortSignal): Promise<void> {
    const path = `permissions/${encodeURIComponent(permissionId)}/answer`;
    for (let attempt = 1; attempt <= ANSWER_ATTEMPTS && !signal.aborted; attempt += 1) {
      const found = await request('POST', path, { body, signal }).catch(() => undefined);
      if (found !== undefined && found.status < 500) {
        if (found.status !== 200) logger.warn({ agent: id, status: found.status }, 'a remote agent refused an answer');
        return;
      }
      await pause(clock, ANSWER_PAUSE_MS, signal);
    }
  }

  /** A route of the second surface there. An older bridge answers it with 404. Rejects when there is no answer. */
  async function request(
    method: 'GET' | 'POST',
    path: string,
    { body, signal, timeoutMs = SHORT_CALL_MS }: RequestParts,
  ) {
    const response = await boundedFetch(
      `${base}/${path}`,
      {
        method,
        headers: {
          ...authorizationOf(options.token),
          ...hopHeader(1),
          ...(body !== undefined && { 'content-type': 'application/json' }),
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
        ...(signal !== undefined && { signal }),
      },
      { timeoutMs, ...(options.through !== undefined && { send: options.through.fetch }) },
    );
    const text = await response.text();
    return { status: response.status, answer: asObject(readMessage(text)) };
  }

  async function steer(reference: string, text: string): Promise<boolean> {
    const path = `sessions/${encodeURIComponent(reference)}/steer`;
    const found = await request('POST', path, { body: { text } }).catch(() => undefined);
    return found?.status === 200;
  }

  async function fork(reference: string, { turnId }: Fork): Promise<Forked> {
    // Its turns have other ids there.
    if (turnId !== undefined) {
      return { why: 'an agent on another bridge copies whole conversations only; leave `turnId` out' };
    }
    try {
      const path = `sessions/${encodeURIComponent(reference)}/fork`;
      const { status, answer } = await request('POST', path, { body: {}, timeoutMs: FORK_MS });
      if (status === 201 && typeof answer.sessionId === 'string') return { reference: answer.sessionId };
      if (answer.error === 'session_not_found') return { why: 'the other bridge no longer has the session' };
      if (status === 404) return { why: 'the other bridge does not offer copies; it may be older' };
      return { why: `the other bridge refused: ${textOf(answer.message) || `status ${status}`}` };
    } catch (error) {
      return { why: `the other bridge cannot be reached: ${networkReason(error)}` };
    }
  }

  /** What the agents there can do: of several agents, what one of them can. */
  async function readAbilities(signal: AbortSignal): Promise<AgentAbilities> {
    const found = await request('GET', 'agents', { signal }).catch(() => undefined);
    const agents = found?.status === 200 ? objectsIn(found.answer.agents) : [];
    const usable = agents.filter(({ state }) => state === 'ok');
    return {
      steer: usable.some((agent) => agent.steer === 'yes') ? 'yes' : 'no',
      fork: usable.some((agent) => agent.fork === 'yes' || agent.fork === 'offered') ? 'offered' : 'no',
      forkFrom: 'last_turn',
    };
  }

  /** Sends a file that is too large for a call ahead of it. */
  async function upload({ name, contentType, read }: PlacedFile, stop: AbortSignal): Promise<string> {
    const { signal, release } = deadline(clock, UPLOAD_MS, [stop]);
    try {
      const { fetch: send = fetch } = options.through ?? {};
      const response = await send(new URL('api/bridge/attachments', `${options.url.replace(/\/$/, '')}/`), {
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
      const [capabilities, found] = await Promise.all([
        shortCall('acp.capabilities', {}, 1, [signal]),
        readAbilities(signal),
      ]);
      abilities = found;
      return readCapabilities(capabilities);
    },
    run,
    fork,
    get abilities() {
      return abilities;
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
        ...(options.through !== undefined && { dispatcher: options.through.dispatcher }),
      }),
    stop: () => Promise.resolve(),
  };
}

interface RequestParts {
  readonly body?: object;
  readonly signal?: AbortSignal;
  readonly timeoutMs?: number;
}

const NO_ABILITIES: AgentAbilities = { steer: 'no', fork: 'no', forkFrom: 'last_turn' };

/** Messages to the turn of another bridge. Its updates tell them as well, and our own bridge has told them by then. */
function createSteering(send: (text: string) => Promise<boolean>, steerable: AgentTurn['steerable']) {
  const sent: string[] = [];
  let hasBegun = false;
  return {
    /** The turn runs there: before, nothing could be sent to it. */
    begun() {
      if (hasBegun) return;
      hasBegun = true;
      steerable?.(async (text) => {
        if (sent.length >= MAX_STEERED) return false;
        sent.push(text);
        const isTaken = await send(text);
        if (!isTaken) sent.splice(sent.indexOf(text), 1);
        return isTaken;
      });
    },
    isOwn(event: AgentEvent): boolean {
      const at = event.kind === 'steer' ? sent.indexOf(event.text) : -1;
      if (at >= 0) sent.splice(at, 1);
      return at >= 0;
    },
  };
}

/** Questions of the agent there, which people here answer. Their decisions come back as updates, which were told here by then. */
function createQuestions(turn: SupervisedTurn, answer: (permissionId: string, body: object) => Promise<void>) {
  const open = new Map<string, AbortController>();
  const answered = new Set<string>();

  async function ask(question: QuestionEvent): Promise<void> {
    const { permissionId, toolCallId = '', title, toolKind, options, form } = question;
    const ended = new AbortController();
    open.set(permissionId, ended);
    const asked = { toolCallId, title, toolKind, options, ...(form !== undefined && { form: form as QuestionForm }) };
    const { optionId, values, reason } = await turn.permit(asked, 'allow', ended.signal);
    if (!open.delete(permissionId)) return;
    answered.add(permissionId);
    const choice =
      values !== undefined ? { values } : optionId !== undefined ? { optionId } : { decision: 'deny' as const };
    await answer(permissionId, { ...choice, ...(reason !== undefined && { reason }) });
  }

  return {
    /** Whether the update is about a question, and needs no further report. */
    take(params: Readonly<Record<string, unknown>>): boolean {
      const event = asObject(params.structuredEvent);
      if (event.kind === 'question') {
        if (Check(QuestionEvent, event) && open.size + answered.size < MAX_QUESTIONS) void ask(event);
        return true;
      }
      const permissionId = textOf(event.permissionId);
      // Somebody there was faster, or nobody answered in time.
      open.get(permissionId)?.abort();
      open.delete(permissionId);
      return answered.has(permissionId);
    },
    end() {
      for (const ended of open.values()) ended.abort();
      open.clear();
    },
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

function turnParams({ isScratchFolder, runner }: RemoteAgentOptions, reference: string, turn: AgentTurn): object {
  const { workingDirectory, model, skills } = turn;
  return {
    sessionId: reference,
    threadId: reference,
    taskPrompt: turn.prompt,
    ...(!isScratchFolder(workingDirectory) && { workingDirectory }),
    routing: {
      ...(runner !== undefined && { explicitProviderId: runner.agent }),
      ...(model !== '' && { explicitModel: model }),
      ...(skills.length > 0 && { explicitSkills: skills, availableSkills: skills }),
      ...(turn.asks === true && { permissions: 'ask' }),
      ...(turn.isReadOnly === true && { permissions: 'deny' }),
    },
  };
}

/** The other bridge keeps them with its session. One that does not know the member ignores it. Our own tools stay here. */
function serversOf({ mcpServers = [] }: AgentTurn): { readonly mcpServers?: AgentTurn['mcpServers'] } {
  const passed = mcpServers.filter((server) => !isOurs(server));
  return passed.length === 0 ? {} : { mcpServers: passed };
}

/** Usable when one of the agents there is. */
function readCapabilities(reply: RemoteReply): ProbeResult {
  if (reply.kind === 'aborted') return { status: 'failed: timed out', version: '' };
  if (reply.kind !== 'result') {
    const reason = reply.kind === 'error' ? reply.message : 'reason' in reply ? reply.reason : 'its runner is away';
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
