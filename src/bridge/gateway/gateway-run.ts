import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { AgentTurn, ProducedFile, TurnEnd, TurnUsage } from '../agents/agent-provider.ts';
import { asObject, createFinalText, createProgressThinning, textOf } from '../agents/agent-text.ts';
import { promptWithSkills } from '../routing/match-skills.ts';
import type { GatewayLink } from './gateway-link.ts';
import {
  describeGatewayFailure,
  type GatewayEvent,
  isSocketLoss,
  messageText,
  readGatewayEvent,
} from './gateway-messages.ts';

/** One task at the gateway, from `chat.send` to its end. */
export interface GatewayRun {
  /** Never rejects. */
  run(): Promise<TurnEnd>;
  /** Asks the gateway to stop; the run then ends as cancelled. One that has not begun does not begin any more. */
  abort(): Promise<void>;
  isAborted(): boolean;
  /** Ends it here, whatever the gateway does. */
  giveUp(): void;
}

export interface RunLimits {
  readonly sendMs: number;
  /** How long one `agent.wait` waits; then the next one begins. */
  readonly waitMs: number;
  /** A run of which nothing was heard for so long is given up. */
  readonly silenceMs: number;
}

interface GatewayRunOptions extends Pick<Runtime, 'clock' | 'logger'> {
  readonly link: GatewayLink;
  readonly sessionKey: string;
  readonly turn: AgentTurn;
  readonly limits?: Partial<RunLimits>;
}

const LIMITS: RunLimits = { sendMs: 60_000, waitMs: 30_000, silenceMs: 3_600_000 };
/** What an answer may take longer than the wait that it answers. */
const WAIT_MARGIN_MS = 10_000;
const MAX_EARLY_EVENTS = 1000;

type Ending = { readonly status: string; readonly text: string; readonly error: string; readonly stopReason: string };

export function createGatewayRun(options: GatewayRunOptions): GatewayRun {
  const { link, sessionKey, turn, clock, logger } = options;
  const limits = { ...LIMITS, ...options.limits };
  /** Our key, until the gateway names the run otherwise. */
  let runId = turn.turnId;
  /** Events of other runs while the name of ours is not known: they may turn out to be of ours. */
  let early: GatewayEvent[] | undefined;
  const givenUp = new AbortController();
  const text = createFinalText();
  const isWorthPassingOn = createProgressThinning();
  let isAborted = false;
  let hasBegun = false;
  let hasSpoken = false;
  let usage: TurnUsage | undefined;
  let finalText = '';
  let lastSign = clock.monotonic();

  /** Only what belongs to this very run: nothing of one session reaches another. */
  function hear(event: GatewayEvent): Promise<void> | undefined {
    if (event.payload.runId !== runId) {
      if (early !== undefined && early.length < MAX_EARLY_EVENTS) early.push(event);
      return undefined;
    }
    lastSign = clock.monotonic();
    if (event.name === 'chat' && event.payload.state === 'final') finalText = messageText(event.payload.message);
    if (event.payload.stream === 'usage') usage = readUsage(event.payload.data) ?? usage;
    const told = readGatewayEvent(event);
    if (told === undefined || !isWorthPassingOn(told)) return undefined;
    if (told.kind === 'text') hasSpoken = true;
    text.add(told);
    return turn.report(told);
  }

  async function sendAndWait(): Promise<Ending> {
    const { signal } = givenUp;
    if (turn.model !== '') {
      await link.request('sessions.patch', { key: sessionKey, model: turn.model }, limits.sendMs, signal);
      turn.usedModel(turn.model);
    }
    const prompt = promptWithSkills(turn.prompt, turn.skills);
    const message = { sessionKey, message: prompt, idempotencyKey: turn.turnId };
    early = [];
    const sent = asObject(await link.request('chat.send', message, limits.sendMs, signal));
    runId = textOf(sent.runId) || runId;
    const missed = early;
    early = undefined;
    await Promise.all(missed.map(hear));
    for (;;) {
      const waited = { runId, timeoutMs: limits.waitMs };
      const answer = asObject(await link.request('agent.wait', waited, limits.waitMs + WAIT_MARGIN_MS, signal));
      const status = textOf(answer.status);
      const isOpen = status === 'timeout' || status === 'pending' || status === 'accepted';
      if (!isOpen) return readEnding(answer);
      if (clock.monotonic() - lastSign > limits.silenceMs) return { ...readEnding({}), status: 'silent' };
    }
  }

  /** A lost socket is made up for once; the key makes sure that the gateway does not begin the work a second time. */
  async function withOneRetry(): Promise<Ending> {
    try {
      return await sendAndWait();
    } catch (error) {
      if (!isSocketLoss(error) || isAborted || givenUp.signal.aborted) throw error;
      logger.warn({ turnId: turn.turnId }, 'the socket to the gateway was lost during a task; it is taken up again');
      await link.connect();
      return sendAndWait();
    }
  }

  async function run(): Promise<TurnEnd> {
    hasBegun = true;
    const stopListening = link.listen(hear);
    try {
      const ending = await withOneRetry();
      return await endOf(ending);
    } catch (error) {
      if (isAborted || givenUp.signal.aborted) return { kind: 'cancelled', output: text.value() };
      return gatewayFailure(error);
    } finally {
      stopListening();
    }
  }

  async function endOf(ending: Ending): Promise<TurnEnd> {
    const output = ending.text || finalText || text.value();
    const shared = { output, ...(usage !== undefined && { usage }) };
    if (isAborted) return { kind: 'cancelled', ...shared };
    if (ending.status === 'silent') {
      const error = 'Nothing was heard of the task for too long.';
      return { kind: 'failed', code: 'AGENT_TIMEOUT', error, ...shared };
    }
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

  return {
    run,
    async abort() {
      isAborted = true;
      if (!hasBegun) return;
      await link.request('chat.abort', { sessionKey, runId }, limits.sendMs, givenUp.signal).catch((error: unknown) => {
        logger.warn(
          { turnId: turn.turnId, code: describeGatewayFailure(error).code },
          'a gateway task was not aborted there',
        );
      });
    },
    isAborted: () => isAborted,
    giveUp: () => givenUp.abort(),
  };
}

/** The gateway itself failed, and not the agent behind it: for the app an error of the call (contract/bridge 3). */
export function gatewayFailure(error: unknown): TurnEnd {
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

const MOST_FILES = 10;
const MOST_BYTES = 64 * 1024 * 1024;
const LIST_MS = 10_000;
const DOWNLOAD_MS = 60_000;

/**
 * The files that the assistant delivered in a run. A gateway that does not know artifacts, or cannot hand one over, has
 * none for us: the answer of the task does not depend on them.
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
    let room = MOST_BYTES;
    for (const artifact of (Array.isArray(artifacts) ? artifacts : []).slice(0, MOST_FILES)) {
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
