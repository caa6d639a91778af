import type { ToolCall } from '../../contract/chat.ts';
import { type ContentItem, droppedPiece } from '../content.ts';
import { callArguments, packProof, type Turn, type TurnItem, unpackProofs } from '../conversation.ts';
import type { Steps } from '../dialect.ts';
import { asObject, asText, asWords, type JsonObject } from '../json-value.ts';

/** What Google tells callers to send for a call whose signature is lost, or that another model made. */
const LOST_SIGNATURE = 'skip_thought_signature_validator';

interface ContentsOptions {
  readonly model: string;
  /** Vertex refuses ids of calls, and pairs calls and results by their order. */
  readonly withCallIds: boolean;
  /** Names of what cannot be sent are added to it. */
  readonly dropped: Set<string>;
  readonly steps: Steps;
}

export function encodeContents(turns: readonly Turn[], options: ContentsOptions): JsonObject[] {
  return turns.map(({ role, items }) =>
    role === 'user'
      ? { role, parts: items.flatMap((item) => encodeItem(item, options)) }
      : { role: 'model', parts: encodeModelTurn(items, options) },
  );
}

/** Signatures of calls, by their number within the message, and that of the text. */
export function packCallSignature(call: number, signature: string): string {
  return packProof('google', `c${call}`, signature);
}

export function packTextSignature(signature: string): string {
  return packProof('google', 'p', signature);
}

/** A call carries its signature as in Google's own OpenAI API too, since some clients keep that and nothing else. */
export function signedCall(signature: string): { extra_content: { google: { thought_signature: string } } } {
  return { extra_content: { google: { thought_signature: signature } } };
}

function encodeModelTurn(items: readonly TurnItem[], options: ContentsOptions): JsonObject[] {
  const parts: JsonObject[] = [];
  let proofs = new Map<string, string>();
  let calls = 0;
  for (const item of items) {
    if (item.kind === 'reasoning') {
      proofs = new Map(unpackProofs('google', item.signature, options.steps).map(({ mark, proof }) => [mark, proof]));
      calls = 0;
    } else if (item.kind === 'call') {
      const signature = ownSignature(item.call) ?? proofs.get(`c${calls}`) ?? (calls === 0 ? lost(options) : undefined);
      calls += 1;
      parts.push({
        ...encodeCall(item.call, options),
        ...(signature !== undefined && { thoughtSignature: signature }),
      });
    } else {
      const encoded = encodeItem(item, options);
      const signature = proofs.get('p');
      const [first] = encoded;
      if (item.kind === 'text' && first !== undefined && signature !== undefined) first.thoughtSignature = signature;
      parts.push(...encoded);
    }
  }
  return parts;
}

/** From Gemini 3 on a turn's first call must have a signature. */
function lost({ model }: ContentsOptions): string | undefined {
  return geminiVersion(model) >= 300 ? LOST_SIGNATURE : undefined;
}

function ownSignature(call: ToolCall): string | undefined {
  const { extra_content: extra } = call as { extra_content?: unknown };
  return asWords(asObject(asObject(extra)?.google)?.thought_signature);
}

function encodeCall(call: ToolCall, { withCallIds }: ContentsOptions): JsonObject {
  const id = withCallIds && call.id !== '' && { id: call.id };
  return { functionCall: { ...id, name: call.function.name, args: callArguments(call) } };
}

function encodeItem(item: TurnItem, options: ContentsOptions): JsonObject[] {
  if (item.kind === 'reasoning') return [];
  if (item.kind === 'call') return [encodeCall(item.call, options)];
  if (item.kind !== 'result') return encodePiece(item, options);
  const output = item.content.map((piece) => (piece.kind === 'text' ? asText(piece.text) : '')).join('');
  const media = item.content.filter((piece) => piece.kind !== 'text');
  const id = options.withCallIds && item.callId !== '' && { id: item.callId };
  return [
    { functionResponse: { ...id, name: item.name, response: { output } } },
    ...media.flatMap((piece) => encodePiece(piece, options)),
  ];
}

function encodePiece(item: ContentItem, { dropped }: ContentsOptions): JsonObject[] {
  switch (item.kind) {
    case 'text':
      return [{ text: item.text }];
    case 'data':
      return [{ inlineData: { mimeType: item.mediaType, data: item.base64 } }];
    case 'link':
      return [{ fileData: { mimeType: item.mediaType, fileUri: item.url } }];
    case 'unknown':
      dropped.add(droppedPiece(item));
      return [];
  }
}

const BUDGETS: ReadonlyMap<string, number> = new Map([
  ['minimal', 512],
  ['low', 1024],
  ['medium', 8192],
  ['high', 24_576],
  ['xhigh', 24_576],
]);

/** What Gemini 2.5 Pro thinks at the least. */
const SMALLEST_PRO_BUDGET = 128;

/** 205 for `gemini-2.5-flash`, 300 for `gemini-3-pro-preview`; 0 for a model that is not a Gemini. */
export function geminiVersion(model: string): number {
  const [, major, minor] = /gemini-(\d{1,2})(?:\.(\d{1,2}))?/.exec(model) ?? [];
  return major === undefined ? 0 : Number(major) * 100 + Number(minor ?? 0);
}

/** Models since 2.5, and names without a version (`gemini-flash-latest`), take JSON Schema as it is. */
export function takesJsonSchema(model: string): boolean {
  const version = geminiVersion(model);
  return version === 0 ? model.includes('gemini') : version >= 205;
}

/** OpenAI's `reasoning_effort` as a budget or, from Gemini 3 on, as a level. Undefined: the model has neither. */
export function thinkingConfig(model: string, effort: string): JsonObject | undefined {
  const version = geminiVersion(model);
  if (version >= 300) {
    const level = thinkingLevel(model, effort);
    return level === undefined ? undefined : { thinkingLevel: level, includeThoughts: effort !== 'none' };
  }
  if (version < 205) return undefined;
  if (effort === 'none') return { thinkingBudget: model.includes('pro') ? SMALLEST_PRO_BUDGET : 0 };
  const budget = BUDGETS.get(effort);
  return budget === undefined ? undefined : { thinkingBudget: budget, includeThoughts: true };
}

/** Only the fast models go below `low`, and the first Pro knew nothing between `low` and `high`. */
function thinkingLevel(model: string, effort: string): string | undefined {
  switch (effort) {
    case 'none':
    case 'minimal':
      return model.includes('flash') ? 'minimal' : 'low';
    case 'low':
      return 'low';
    case 'medium':
      return model.includes('gemini-3-pro') ? 'high' : 'medium';
    case 'high':
    case 'xhigh':
    case 'max':
      return 'high';
    default:
      return undefined;
  }
}
