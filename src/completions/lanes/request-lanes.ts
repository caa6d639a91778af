import type { IncomingHttpHeaders } from 'node:http';
import type { Usage } from '../contract/chat.ts';
import { claudeUsage, mergeClaudeUsage } from '../dialects/anthropic/claude-model.ts';
import type { UpstreamFailure } from '../dialects/dialect.ts';
import { brokenAnswer, endedEarly, failureInObject, isFailureObject } from '../dialects/failure.ts';
import { googleSearches, googleUsage, isGoogleAnswer, promptRefusal } from '../dialects/google/google-dialect.ts';
import { asCount, asList, asNumber, asObject, asWords, type JsonObject } from '../dialects/json-value.ts';
import { readResponsesUsage } from '../dialects/openai/openai-answer.ts';
import { failureOfResponse } from '../dialects/openai/responses-dialect.ts';

/**
 * Describes how requests and responses of one API pass as bytes to upstreams of the same API. Only events near a marker are parsed, to
 * read the usage, to find failures, and to correct deviations of a few upstreams.
 */
export interface Lane {
  readonly name: 'messages' | 'count_tokens' | 'responses' | 'generate' | 'gemini_count';
  /** The address names the model, not the body. */
  readonly modelInAddress?: true;
  /** Headers of the caller that this API defines. All others are not passed on. */
  readonly passedHeaders: RegExp;
  /** Required headers, for callers that do not send them. */
  readonly defaultHeaders: Readonly<Record<string, string>>;
  /** Finds the events of a stream that must be parsed. Global, and never true for an event of text alone. */
  readonly markers: RegExp;
  /** What identifies an event with a piece of the response, and the length of such an event without its text. */
  readonly delta: { readonly mark: string; readonly bytes: number };
  startStream(): LaneStream;
  readWhole(body: JsonObject): LaneAnswer;
}

/** Usage, failure and stored objects of a complete response. One that failed may have used tokens, too. */
interface LaneAnswer {
  readonly usage?: Usage | undefined;
  readonly failure?: UpstreamFailure | undefined;
  /** Ids of objects that the upstream stores, and that the caller may name later. */
  readonly kept?: readonly string[];
}

/** Reads the marked events of one stream. */
interface LaneStream {
  read(event: string | undefined, body: JsonObject): LaneStep;
  usage(): Usage | undefined;
  /** Returns what must follow to complete the stream; undefined if the response is not complete. */
  ending(): string | undefined;
}

interface LaneStep {
  readonly failure?: UpstreamFailure;
  /** The answer is complete. */
  readonly done?: boolean;
  /** The event is not sent on. */
  readonly drop?: boolean;
  readonly kept?: readonly string[];
}

/** Returns the headers of a request that are passed to its upstream. */
export function passedHeaders({ passedHeaders: passed, defaultHeaders }: Lane, given: IncomingHttpHeaders) {
  const headers: Record<string, string> = { ...defaultHeaders };
  for (const [name, value] of Object.entries(given)) {
    if (typeof value === 'string' && passed.test(name)) headers[name] = value;
  }
  return headers;
}

const VERSION = '2023-06-01';
const END = 'event: message_stop\ndata: {"type":"message_stop"}\n\n';

/** Anthropic's Messages API. Its rules for gateways: headers of Anthropic and of Claude Code are an open list and pass as sent. */
export const messagesLane: Lane = {
  name: 'messages',
  passedHeaders: /^(?:accept|anthropic-.{1,64}|user-agent|x-app|x-claude-.{1,64}|x-stainless-.{1,64})$/,
  defaultHeaders: { 'anthropic-version': VERSION },
  markers:
    /"(?:usage": ?\{|stop_reason": ?"|error"|message": ?"|detail")|"type": ?"(?:message_(?:start|stop)|error)"|(?:^|[\r\n])event: ?error/g,
  delta: { mark: '"content_block_delta"', bytes: 118 },
  startStream() {
    const figures: JsonObject = {};
    let begun = false;
    let finished = false;

    function start(message: JsonObject): LaneStep {
      mergeClaudeUsage(figures, message.usage, message.container);
      // A second start would make clients refuse the stream.
      if (begun) return { drop: true };
      begun = true;
      return { kept: containerOf(message) };
    }

    return {
      read(event, body) {
        const type = body.type ?? event;
        if (event === 'error' || isFailureObject(body, body.type !== undefined))
          return { failure: failureInObject(body) };
        if (type === 'message_start') return start(asObject(body.message) ?? {});
        if (type === 'message_stop') return finished ? { done: true } : { failure: endedEarly() };
        if (type !== 'message_delta') return {};
        const delta = asObject(body.delta) ?? {};
        mergeClaudeUsage(figures, body.usage, delta.container);
        if (asWords(delta.stop_reason) !== undefined) finished = true;
        return { kept: containerOf(delta) };
      },
      usage: () => claudeUsage(figures),
      ending: () => (finished ? END : undefined),
    };
  },
  readWhole(body) {
    if (isFailureObject(body, Array.isArray(body.content))) return { failure: failureInObject(body) };
    if (!Array.isArray(body.content)) return { failure: brokenAnswer('The response of the model API has no content.') };
    const usage = asObject(body.usage);
    const { container } = body;
    return { usage: usage === undefined ? undefined : claudeUsage({ ...usage, container }), kept: containerOf(body) };
  },
};

/** Tokens of a prompt, counted by the model's own maker. */
export const countTokensLane: Lane = {
  ...messagesLane,
  name: 'count_tokens',
  readWhole(body) {
    if (asNumber(body.input_tokens) !== undefined) return { usage: claudeUsage({}) };
    return { failure: isFailureObject(body, false) ? failureInObject(body) : brokenAnswer('It counted no tokens.') };
  },
};

/** The sandbox that code ran in: the next request may name it. */
function containerOf(message: JsonObject): readonly string[] {
  const id = asWords(asObject(message.container)?.id);
  return id === undefined ? [] : [id];
}

/** OpenAI's Responses API. What names an organisation or a project stays here: the operator's key decides those. */
export const responsesLane: Lane = {
  name: 'responses',
  passedHeaders:
    /^(?:accept|openai-beta|user-agent|originator|version|session[-_]id|thread[-_]id|conversation[-_]id|x-client-request-id|x-codex-.{1,64}|x-openai-.{1,64}|x-stainless-.{1,64})$/,
  defaultHeaders: {},
  markers:
    /"type": ?"(?:response\.(?:created|completed|incomplete|failed|cancelled)|error)"|"(?:object": ?"error|message": ?"|detail")|(?:^|[\r\n])event: ?error/g,
  delta: { mark: '.delta","', bytes: 190 },
  startStream() {
    let usage: Usage | undefined;
    return {
      read(event, body) {
        if (event === 'error' || isFailureObject(body, body.type !== undefined))
          return { failure: failureInObject(body) };
        const response = asObject(body.response) ?? {};
        switch (body.type) {
          case 'response.created':
            return { kept: keptIn(response) };
          case 'response.completed':
          case 'response.incomplete':
            usage = readResponsesUsage(response.usage, response.output);
            return { done: true, kept: keptIn(response) };
          case 'response.failed':
          case 'response.cancelled':
            usage = readResponsesUsage(response.usage, response.output);
            return { failure: failureOfResponse(response) };
          default:
            return {};
        }
      },
      usage: () => usage,
      // The last event holds the whole response: nothing of ours could stand for it.
      ending: () => (usage === undefined ? undefined : ''),
    };
  },
  readWhole(body) {
    if (isFailureObject(body, Array.isArray(body.output)) || body.status === 'failed') {
      return { failure: failureOfResponse(body), usage: readResponsesUsage(body.usage, body.output) };
    }
    if (!Array.isArray(body.output)) return { failure: brokenAnswer('The response of the model API has no output.') };
    return { usage: readResponsesUsage(body.usage, body.output), kept: keptIn(body) };
  },
};

/** The response and its items, unless the caller asked the API to store nothing. */
function keptIn(response: JsonObject): readonly string[] {
  if (response.store === false) return [];
  const ids = [response.id, ...asList(response.output).map((item) => asObject(item)?.id)];
  return ids.flatMap((id) => asWords(id) ?? []);
}

/**
 * Google's `generateContent`. Every event is parsed, because each has the usage so far. A stream has no end marker: it is complete when
 * each candidate that has begun has its finish reason. What names a project stays here: the operator's key decides that.
 */
export const generateLane: Lane = {
  name: 'generate',
  modelInAddress: true,
  passedHeaders: /^(?:accept|user-agent|x-goog-api-client)$/,
  defaultHeaders: {},
  markers:
    /"(?:candidates|usageMetadata|promptFeedback|error|message|Message|detail)"|"(?:object|type)": ?"error"|(?:^|[\r\n])event: ?error/g,
  delta: { mark: '"candidates"', bytes: 200 },
  startStream() {
    const begun = new Set<number>();
    const finished = new Set<number>();
    let isRefused = false;
    let figures: JsonObject | undefined;
    let searches = 0;
    return {
      read(event, body) {
        if (event === 'error' || isFailureObject(body, isGoogleAnswer(body))) return { failure: failureInObject(body) };
        figures = asObject(body.usageMetadata) ?? figures;
        searches = Math.max(searches, googleSearches(body));
        if (promptRefusal(body) !== undefined) isRefused = true;
        for (const value of asList(body.candidates)) {
          const candidate = asObject(value) ?? {};
          const index = asCount(candidate.index);
          begun.add(index);
          if (asWords(candidate.finishReason) !== undefined) finished.add(index);
        }
        return {};
      },
      usage: () => (figures === undefined ? undefined : googleUsage(figures, searches)),
      ending: () => (isRefused || (begun.size > 0 && begun.size === finished.size) ? '' : undefined),
    };
  },
  readWhole(body) {
    if (isFailureObject(body, isGoogleAnswer(body))) return { failure: failureInObject(body) };
    if (asList(body.candidates).length === 0 && promptRefusal(body) === undefined) {
      return { failure: brokenAnswer('The response of the model API has no candidates.') };
    }
    const figures = asObject(body.usageMetadata);
    return { usage: figures === undefined ? undefined : googleUsage(figures, googleSearches(body)) };
  },
};

/** Tokens of a prompt, counted by Google. */
export const geminiCountLane: Lane = {
  ...generateLane,
  name: 'gemini_count',
  readWhole(body) {
    if (asNumber(body.totalTokens) !== undefined) return { usage: googleUsage({}) };
    return { failure: isFailureObject(body, false) ? failureInObject(body) : brokenAnswer('It counted no tokens.') };
  },
};

/** Events of images, speech and transcriptions: `image_generation.completed`, `speech.audio.done`, `transcript.text.done`. */
export const mediaEvents: Pick<Lane, 'markers' | 'delta' | 'startStream'> = {
  markers:
    /"type": ?"(?:[a-z_.]{1,64}\.(?:completed|done)|error)"|"(?:object": ?"error|message": ?"|detail"|error": ?\{)|(?:^|[\r\n])event: ?error/g,
  delta: { mark: '.delta"', bytes: 80 },
  startStream() {
    let usage: Usage | undefined;
    let finished = false;
    return {
      read(event, body) {
        if (event === 'error' || isFailureObject(body, body.type !== undefined))
          return { failure: failureInObject(body) };
        if (!/\.(?:completed|done)$/.test(String(body.type ?? event))) return {};
        finished = true;
        usage = readResponsesUsage(body.usage) ?? usage;
        return {};
      },
      usage: () => usage,
      // Several images have several such events: the stream is complete when it ends after one.
      ending: () => (finished ? '' : undefined),
    };
  },
};
