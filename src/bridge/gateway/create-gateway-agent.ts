import { onAbort, unlessAborted } from '../../platform/clock/clock.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { AgentEnd, AgentProvider, ProducedFile, SupervisedTurn, TurnUsage } from '../agents/agent-provider.ts';
import { asObject, textOf } from '../agents/agent-text.ts';
import { promptContent, textOfPart } from '../agents/prompt-content.ts';
import { promptWithSkills } from '../routing/resolve-route.ts';
import type { GatewayLink } from './gateway-link.ts';
import {
  describeGatewayFailure,
  type GatewayEvent,
  isSocketLoss,
  messageText,
  readGatewayEvent,
} from './gateway-messages.ts';

interface GatewayAgentOptions extends Pick<Runtime, 'makeId' | 'logger'> {
  readonly id: string;
  readonly link: GatewayLink;
  readonly limits?: Partial<RunLimits>;
}

const SHORT_CALL_MS = 15_000;

/** Runs gateway tasks as turns of an agent. The reference of a conversation is the session's name at the gateway. */
export function createGatewayAgent(options: GatewayAgentOptions): AgentProvider {
  const { id, link, makeId, logger } = options;
  const limits = { ...RUN_LIMITS, ...options.limits };

  /** Checks that the gateway can be reached before anything is started. Returns the end of the turn when it cannot. */
  async function reach(): Promise<AgentEnd | undefined> {
    try {
      await link.connect();
      return undefined;
    } catch (error) {
      return { kind: 'failed', code: 'GATEWAY_UNAVAILABLE', error: describeGatewayFailure(error).message };
    }
  }

  /** Checks that the gateway knows the session, because a message would open a new one silently. */
  async function isKnown(sessionKey: string): Promise<boolean> {
    const { messages } = asObject(await link.request('chat.history', { sessionKey, limit: 1 }, SHORT_CALL_MS));
    return Array.isArray(messages) && messages.length > 0;
  }

  /** Returns why the session cannot be continued; undefined when it can. */
  async function findObstacle(sessionKey: string): Promise<AgentEnd | undefined> {
    try {
      return (await isKnown(sessionKey)) ? undefined : { kind: 'lost', detail: 'the gateway has no such session' };
    } catch (error) {
      return gatewayFailure(error);
    }
  }

  return {
    id,
    timeouts: { silenceMs: limits.silenceMs },
    probe: link.probe,
    async run(turn, signal) {
      const { reference } = turn;
      const sessionKey = reference ?? makeId('trestle-');
      const prepared = reach().then(
        (obstacle) => obstacle ?? (reference === undefined ? undefined : findObstacle(reference)),
      );
      const obstacle = await unlessAborted(prepared, signal);
      if (signal.aborted) return { kind: 'cancelled' };
      if (obstacle !== undefined) return obstacle;
      if (reference === undefined) turn.opened(sessionKey);
      return runGatewayTask({ link, logger, limits, sessionKey, turn, signal });
    },
    async close(sessionKey, closing) {
      // Deleting needs the rights of an administrator at the gateway, so the session is archived: it is then hidden there.
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
    stop: link.stop,
  };
}

interface RunLimits {
  readonly sendMs: number;
  /** How long one `agent.wait` waits; then the next one begins. */
  readonly waitMs: number;
  /** A run without an event for this long is stopped. */
  readonly silenceMs: number;
}

interface GatewayRunOptions extends Pick<Runtime, 'logger'> {
  readonly link: GatewayLink;
  readonly sessionKey: string;
  readonly turn: SupervisedTurn;
  readonly signal: AbortSignal;
  readonly limits: RunLimits;
}

const RUN_LIMITS: RunLimits = { sendMs: 60_000, waitMs: 30_000, silenceMs: 3_600_000 };
/** Added to the timeout of a request that waits for the end of a run. */
const WAIT_MARGIN_MS = 10_000;
const MAX_EARLY_EVENTS = 1000;

type Ending = { readonly status: string; readonly text: string; readonly error: string; readonly stopReason: string };

/** One task at the gateway, from `chat.send` to its end. Never rejects. */
async function runGatewayTask(options: GatewayRunOptions): Promise<AgentEnd> {
  const { link, sessionKey, turn, signal, limits, logger } = options;
  /** Our idempotency key, until the gateway has given the run its own id. */
  let runId = turn.turnId;
  /** Events that arrive before the id of our run is known: they may belong to our run. */
  let early: GatewayEvent[] | undefined;
  let hasSpoken = false;
  let usage: TurnUsage | undefined;
  let finalText = '';

  /** Takes only events of this run, so that events of one session never reach another. */
  function hear(event: GatewayEvent): Promise<void> | undefined {
    if (event.payload.runId !== runId) {
      if (early !== undefined && early.length < MAX_EARLY_EVENTS) early.push(event);
      return undefined;
    }
    if (event.name === 'chat' && event.payload.state === 'final') finalText = messageText(event.payload.message);
    if (event.payload.stream === 'usage') usage = readUsage(event.payload.data) ?? usage;
    const told = readGatewayEvent(event);
    if (told === undefined) return undefined;
    if (told.kind === 'text') hasSpoken = true;
    return turn.report(told);
  }

  async function sendAndWait(): Promise<Ending> {
    if (turn.model !== '') {
      await link.request('sessions.patch', { key: sessionKey, model: turn.model }, limits.sendMs, turn.force);
      turn.usedModel(turn.model);
    }
    const prompt = promptWithSkills(turn.prompt, turn.skills);
    const { text, parts } = await promptContent(prompt, turn.files, { images: true, texts: true });
    const texts = parts.flatMap((part) => (part.kind === 'text' ? [textOfPart(part)] : []));
    const attachments = parts.flatMap((part) =>
      part.kind === 'image'
        ? [{ type: 'image', mimeType: part.contentType, fileName: part.name, content: part.data }]
        : [],
    );
    const message = {
      sessionKey,
      message: [text, ...texts].join('\n\n'),
      idempotencyKey: turn.turnId,
      ...(attachments.length > 0 && { attachments }),
    };
    // The gateway was asked to stop a task that it does not have yet, and would run it now.
    signal.throwIfAborted();
    early = [];
    const sent = asObject(await link.request('chat.send', message, limits.sendMs, turn.force));
    const given = textOf(sent.runId) || runId;
    const isRenamed = given !== runId;
    runId = given;
    if (isRenamed && signal.aborted) abort();
    const missed = early;
    early = undefined;
    await Promise.all(missed.map(hear));
    for (;;) {
      const waited = { runId, timeoutMs: limits.waitMs };
      const answer = asObject(await link.request('agent.wait', waited, limits.waitMs + WAIT_MARGIN_MS, turn.force));
      const status = textOf(answer.status);
      const isOpen = status === 'timeout' || status === 'pending' || status === 'accepted';
      if (!isOpen) return readEnding(answer);
    }
  }

  /** After a lost socket the request is sent again once; the key keeps the gateway from starting the work a second time. */
  async function withOneRetry(): Promise<Ending> {
    try {
      return await sendAndWait();
    } catch (error) {
      if (!isSocketLoss(error) || signal.aborted) throw error;
      logger.warn({ turnId: turn.turnId }, 'the socket to the gateway was lost during a task; it is taken up again');
      await link.connect();
      return sendAndWait();
    }
  }

  async function endOf(ending: Ending): Promise<AgentEnd> {
    const output = ending.text || finalText || turn.output();
    const shared = { output, ...(usage !== undefined && { usage }) };
    if (signal.aborted) return { kind: 'cancelled', ...shared };
    if (ending.status !== 'ok') {
      return {
        kind: 'failed',
        code: 'AGENT_FAILED',
        error: ending.error || `The task ended as ${ending.status}.`,
        ...shared,
      };
    }
    // Events may have been lost with a socket: then the whole answer is reported at the end.
    if (!hasSpoken && output !== '') void turn.report({ kind: 'text', text: output });
    const files = await fetchGatewayArtifacts(link, sessionKey, runId, logger);
    return { kind: 'completed', ...shared, stopReason: ending.stopReason, files };
  }

  function abort(): void {
    link.request('chat.abort', { sessionKey, runId }, limits.sendMs, turn.force).catch((error: unknown) => {
      const { code } = describeGatewayFailure(error);
      logger.warn({ turnId: turn.turnId, code }, 'a gateway task was not aborted there');
    });
  }

  const stopListening = link.listen(hear);
  const release = onAbort(signal, abort);
  turn.begun();
  try {
    return await endOf(await withOneRetry());
  } catch (error) {
    return signal.aborted ? { kind: 'cancelled' } : gatewayFailure(error);
  } finally {
    release();
    stopListening();
  }
}

/** The end of a turn in which the gateway itself failed, not its agent: the caller gets an error of the call. */
function gatewayFailure(error: unknown): AgentEnd {
  const { code, message } = describeGatewayFailure(error);
  return { kind: 'failed', code: 'GATEWAY_FAILED', error: message, output: '', members: { gatewayCode: code } };
}

function readEnding(answer: Readonly<Record<string, unknown>>): Ending {
  const { error, stopReason } = answer;
  return {
    status: textOf(answer.status) || 'unknown',
    text: textOf(asObject(answer.terminalReply).text),
    error: textOf(error) || textOf(asObject(error).message),
    stopReason: textOf(stopReason) || 'end_turn',
  };
}

function readUsage(data: unknown): TurnUsage | undefined {
  const { inputTokens, outputTokens, totalTokens } = asObject(data);
  const counts = Object.entries({ inputTokens, outputTokens, totalTokens }).filter(
    ([, value]) => typeof value === 'number',
  );
  return counts.length === 0 ? undefined : (Object.fromEntries(counts) as TurnUsage);
}

const MAX_FILES = 10;
const MAX_BYTES = 64 * 1024 * 1024;
const LIST_MS = 10_000;
const DOWNLOAD_MS = 60_000;

/**
 * Downloads the files that the assistant has delivered in a run. Returns none when the gateway does not support artifacts, and leaves
 * out files that cannot be downloaded: the result of the task does not depend on them.
 */
async function fetchGatewayArtifacts(
  link: Pick<GatewayLink, 'request'>,
  sessionKey: string,
  runId: string,
  logger: Pick<Runtime['logger'], 'warn'>,
): Promise<readonly ProducedFile[]> {
  const scope = { sessionKey, runId, messageRole: 'assistant' };
  const files: ProducedFile[] = [];
  try {
    const { artifacts } = asObject(await link.request('artifacts.list', scope, LIST_MS));
    let room = MAX_BYTES;
    for (const artifact of (Array.isArray(artifacts) ? artifacts : []).slice(0, MAX_FILES)) {
      const { id, title, mimeType, sizeBytes } = asObject(artifact);
      if (textOf(id) === '' || (typeof sizeBytes === 'number' && sizeBytes > room)) continue;
      const loaded = asObject(await link.request('artifacts.download', { ...scope, artifactId: id }, DOWNLOAD_MS));
      if (loaded.encoding !== 'base64') continue;
      const bytes = Buffer.from(textOf(loaded.data), 'base64');
      if (bytes.length > room) continue;
      room -= bytes.length;
      files.push({ label: textOf(title) || textOf(id), contentType: textOf(mimeType), bytes });
    }
  } catch (error) {
    const { code } = describeGatewayFailure(error);
    if (code !== 'INVALID_REQUEST') logger.warn({ code }, 'files of a gateway task could not be fetched');
  }
  return files;
}
