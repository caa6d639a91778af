import { AppError } from '../../platform/errors/app-error.ts';
import { boundedFetch } from '../../platform/http/bounded-fetch.ts';
import type { Logger } from '../../platform/log/logger.ts';
import { asList, asWords, parseEvent } from '../dialects/json-value.ts';
import type { CompletionsSettings } from '../settings.ts';
import { findPatterns, findPersonalData, mapTexts, PERSONAL_DATA, type PersonalData } from './find-content.ts';
import { createTextScreen, type LocalRail, screenText, type TextScreen } from './text-screen.ts';

export type Stage = 'request' | 'response';

/** Identifies the checked call, for the log and for webhooks. */
export interface CheckedCall {
  readonly requestId: string;
  readonly model: string;
  readonly holderId: string;
}

/** Checks requests before they are sent to models, and responses before callers get them. Rails that only log do not delay a call. */
export interface Guardrails {
  /** Returns whether any rail checks requests, or responses. */
  checks(stage: Stage): boolean;
  /** Whether a rail may change or block responses. They cannot pass as bytes then. */
  readonly changesResponses: boolean;
  /** Whether a webhook must see a whole response before the caller gets any of it. */
  readonly needsWholeResponses: boolean;
  /** Whether a rail only logs what is in responses. */
  readonly logsResponses: boolean;
  /** Checks the texts in a JSON value. Returns the same value where nothing is masked. Throws CONTENT_BLOCKED. */
  check<Value>(stage: Stage, value: Value, call: CheckedCall): Promise<Value>;
  /** Checks texts, and returns them in the same order. */
  checkTexts(stage: Stage, texts: readonly string[], call: CheckedCall): Promise<readonly string[]>;
  /** For texts of one response that come in pieces: the rails without a webhook. `done` writes what was found into the log. */
  screen(call: CheckedCall): { readonly open: () => TextScreen; readonly done: () => void };
  /** Checks texts for the rails that only log, in the background. */
  observe(stage: Stage, texts: readonly string[], call: CheckedCall): void;
  /** Aborts checks in the background. */
  stop(): void;
}

type RailSettings = CompletionsSettings['guardrails'][number];
type WebhookRail = RailSettings & { readonly kind: 'webhook' };

const MAX_OBSERVED = 100;
const MAX_VERDICT_BYTES = 64 * 1024;

/** Creates the guardrails. Returns undefined if no rail is configured, so that a call costs one comparison. */
export function createGuardrails(
  settings: CompletionsSettings['guardrails'],
  logger: Logger,
  fetchBounded: typeof boundedFetch = boundedFetch,
): Guardrails | undefined {
  if (settings.length === 0) return undefined;
  const stopped = new AbortController();
  const of = (stage: Stage) => settings.filter(({ on }) => on === 'both' || on === stage);
  const local = { request: of('request').flatMap(localRail), response: of('response').flatMap(localRail) };
  const remote = { request: of('request').filter(isWebhook), response: of('response').filter(isWebhook) };
  const acts = ({ action }: { readonly action: string }) => action !== 'log';
  let observed = 0;

  /** Counts what each rail finds, and logs one line for each rail. */
  function counter(stage: Stage, { requestId, model, holderId }: CheckedCall) {
    const counts = new Map<LocalRail, number>();
    return {
      onFound: (rail: LocalRail) => void counts.set(rail, (counts.get(rail) ?? 0) + 1),
      done() {
        for (const [{ name, action }, count] of counts) {
          logger.warn({ guardrail: name, action, stage, count, requestId, model, key: holderId }, FOUND);
        }
        counts.clear();
      },
    };
  }

  async function checkLocally(stage: Stage, rails: readonly LocalRail[], texts: readonly string[], call: CheckedCall) {
    if (rails.length === 0) return texts;
    const { onFound, done } = counter(stage, call);
    const screen = createTextScreen(rails, onFound);
    try {
      const checked: string[] = [];
      for (const text of texts) checked.push(await screenText(screen, text));
      return checked;
    } finally {
      done();
    }
  }

  /** Asks a webhook. A webhook that fails blocks the call, unless it would only log. */
  async function ask(rail: WebhookRail, stage: Stage, texts: readonly string[], call: CheckedCall) {
    const { name, action } = rail;
    const about = { guardrail: name, action, stage, requestId: call.requestId, model: call.model, key: call.holderId };
    let verdict: Verdict;
    try {
      verdict = await askWebhook(rail, stage, texts, call);
    } catch (error) {
      logger.error({ ...about, err: error }, 'a guardrail could not be asked');
      if (action === 'log') return texts;
      throw new AppError('CONTENT_BLOCKED', { guardrail: name }, { cause: error });
    }
    if (verdict.action === 'allow') return texts;
    logger.warn({ ...about, verdict: verdict.action }, FOUND);
    if (action === 'log') return texts;
    if (action === 'mask' && verdict.texts !== undefined) return verdict.texts;
    throw new AppError('CONTENT_BLOCKED', { guardrail: name });
  }

  async function askWebhook(rail: WebhookRail, stage: Stage, texts: readonly string[], call: CheckedCall) {
    const { url, token, timeout, name } = rail;
    const body = JSON.stringify({
      guardrail: name,
      stage,
      request_id: call.requestId,
      model: call.model,
      key: call.holderId,
      texts,
    });
    const headers = { 'content-type': 'application/json', ...(token !== '' && { authorization: `Bearer ${token}` }) };
    const limits = { maxBytes: MAX_VERDICT_BYTES + 2 * body.length, timeoutMs: timeout };
    const response = await fetchBounded(url, { method: 'POST', headers, body, signal: stopped.signal }, limits);
    if (response.status !== 200) throw new Error(`it answered with status ${response.status}`);
    return readVerdict(await response.text(), texts.length);
  }

  async function checkBy(
    applies: (rail: { readonly action: string }) => boolean,
    stage: Stage,
    texts: readonly string[],
    call: CheckedCall,
  ): Promise<readonly string[]> {
    let checked = await checkLocally(stage, local[stage].filter(applies), texts, call);
    for (const rail of remote[stage].filter(applies)) checked = await ask(rail, stage, checked, call);
    return checked;
  }

  const logs = ({ action }: { readonly action: string }) => action === 'log';
  const hasLogs = { request: of('request').some(logs), response: of('response').some(logs) };
  const acting = local.response.filter(acts);

  const rails: Guardrails = {
    checks: (stage) => local[stage].length + remote[stage].length > 0,
    changesResponses: of('response').some(acts),
    needsWholeResponses: remote.response.some(acts),
    logsResponses: hasLogs.response,
    async check(stage, value, call) {
      const checked = await rails.checkTexts(stage, textsIn(value), call);
      let place = 0;
      return mapTexts(value, (text) => checked[place++] ?? text);
    },
    checkTexts(stage, texts, call) {
      if (hasLogs[stage]) rails.observe(stage, texts, call);
      return checkBy(acts, stage, texts, call);
    },
    screen(call) {
      const { onFound, done } = counter('response', call);
      return { open: () => createTextScreen(acting, onFound), done };
    },
    observe(stage, texts, call) {
      const { requestId } = call;
      if (observed >= MAX_OBSERVED) {
        logger.warn({ requestId, stage }, 'a call was not checked for the log: too many wait');
        return;
      }
      observed += 1;
      checkBy(logs, stage, texts, call)
        .catch((error: unknown) => logger.error({ err: error, requestId, stage }, 'a call was not checked for the log'))
        .finally(() => {
          observed -= 1;
        });
    },
    stop: () => stopped.abort(),
  };
  return rails;
}

/** All texts in a JSON value. */
export function textsIn(value: unknown): readonly string[] {
  const texts: string[] = [];
  mapTexts(value, (text) => {
    texts.push(text);
    return text;
  });
  return texts;
}

const FOUND = 'a guardrail found something';

function localRail({
  kind,
  name,
  action,
  entities,
  patterns,
  ignore_case: ignoreCase,
  replacement,
}: RailSettings): LocalRail[] {
  if (kind === 'webhook') return [];
  const mask = replacement === '' ? `[${name}]` : replacement;
  const wanted: readonly PersonalData[] = entities.length === 0 ? PERSONAL_DATA : (entities as PersonalData[]);
  const find = kind === 'pii' ? findPersonalData(wanted) : findPatterns(patterns, ignoreCase, mask);
  return [{ name, action, find }];
}

function isWebhook(rail: RailSettings): rail is WebhookRail {
  return rail.kind === 'webhook';
}

interface Verdict {
  readonly action: 'allow' | 'block' | 'mask';
  readonly texts?: readonly string[];
}

/** Throws for anything that is not a verdict about all texts. */
function readVerdict(body: string, count: number): Verdict {
  const given = parseEvent(body);
  const action = asWords(given?.action);
  if (action === 'allow' || action === 'block') return { action };
  if (action !== 'mask') throw new Error('its action is not "allow", "block" or "mask"');
  const texts = asList(given?.texts);
  if (texts.length !== count || !texts.every((text) => typeof text === 'string')) {
    throw new Error(`its texts are not ${count} strings`);
  }
  return { action, texts };
}
