import { AppError } from '../../../platform/errors/app-error.ts';
import type { GeminiContent, GeminiPart, GenerateContentRequest } from '../../contract/gemini.ts';
import { unpackProofs } from '../../dialects/conversation.ts';
import { createSteps, type Reference, type Steps } from '../../dialects/dialect.ts';
import { isUploaded, LOST_SIGNATURE } from '../../dialects/google/google-request.ts';
import { invalidField, isRecord } from '../decoded-request.ts';

/** Members whose own members are the caller's: arguments, results, schemas. */
const OPAQUE: ReadonlySet<string> = new Set([
  ...['args', 'response', 'parameters', 'parametersJsonSchema', 'responseSchema', 'responseJsonSchema', 'labels'],
]);
/** Lists for which Google takes a single item, too. */
const LISTS: ReadonlySet<string> = new Set(['contents', 'parts', 'tools', 'functionDeclarations']);

/** A request with Google's usual names, where the caller wrote the others that it takes: `system_instruction`. */
export function plainNames(value: unknown): unknown {
  if (Array.isArray(value)) {
    const items = value.map(plainNames);
    return items.some((item, index) => item !== value[index]) ? items : value;
  }
  if (!isRecord(value)) return value;
  let changed = false;
  const members = Object.entries(value).map(([name, member]): [string, unknown] => {
    const plain = name.includes('_') ? name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()) : name;
    const listed = LISTS.has(plain) && isRecord(member) ? [member] : member;
    const own = OPAQUE.has(plain) ? listed : plainNames(listed);
    if (plain !== name || own !== member) changed = true;
    return [plain, own];
  });
  if (!changed) return value;
  const plain = Object.fromEntries(members);
  // What we check must be what Google reads.
  if (Object.keys(plain).length < members.length)
    throw new AppError('INVALID_REQUEST', { reason: 'a member is there in two spellings' });
  return plain;
}

export interface PlacedPart {
  readonly part: GeminiPart;
  /** As a JSON pointer: `/contents/0/parts/1`. */
  readonly path: string;
}

interface Turn {
  readonly role: 'user' | 'model';
  readonly parts: readonly PlacedPart[];
}

/** `function` is what results of calls had before they were the user's. */
const ROLES: ReadonlyMap<string, Turn['role']> = new Map([
  ['', 'user'],
  ['user', 'user'],
  ['function', 'user'],
  ['tool', 'user'],
  ['model', 'model'],
]);

/** The turns of a conversation. Clients send the pieces of a streamed answer as contents of their own: they are one turn. */
export function modelTurns(contents: readonly GeminiContent[], steps: Steps): readonly Turn[] {
  const turns: { readonly role: Turn['role']; readonly parts: PlacedPart[] }[] = [];
  for (const [index, { role: given = '', parts = [] }] of contents.entries()) {
    steps.take(1 + parts.length);
    const role = ROLES.get(given);
    if (role === undefined) throw invalidField(`/contents/${index}/role`, 'must be "user" or "model"');
    const placed = parts.map((part, at) => ({ part, path: `/contents/${index}/parts/${at}` }));
    const last = turns.at(-1);
    if (role === 'model' && last?.role === 'model') for (const each of placed) last.parts.push(each);
    else turns.push({ role, parts: placed });
  }
  return turns;
}

/** Thoughts of a translated answer, with the proof of them that their maker wants to see again. */
export interface Proof {
  readonly thoughts: string;
  readonly signature: string;
}

/** Nine bytes, so that what follows begins with a character of base64 of its own. */
const OWN = Buffer.from('trestle1:').toString('base64');

/**
 * A proof as a `thoughtSignature`. It holds the thoughts as well, because clients leave them out; and it is base64,
 * because clients decode and encode it on the way.
 */
export function packProof({ thoughts, signature }: Proof): string {
  return `${OWN}${Buffer.from(JSON.stringify([thoughts, signature])).toString('base64')}`;
}

/** Undefined for a signature that is not one of ours. */
export function readProof(given: string | undefined): Proof | undefined {
  if (given?.startsWith(OWN) !== true) return undefined;
  try {
    const [thoughts, signature] = JSON.parse(Buffer.from(given.slice(OWN.length), 'base64').toString('utf8'));
    if (typeof thoughts === 'string' && typeof signature === 'string') return { thoughts, signature };
  } catch {
    // A client may have cut it.
  }
  return { thoughts: '', signature: '' };
}

/**
 * The request as Google takes it: with Gemini's own signatures in the place of proofs that we packed for a translated answer, and
 * without a model, which only the address names. Undefined when the bytes can pass as they are, which is usual.
 */
export function withOwnSignatures(request: GenerateContentRequest): GenerateContentRequest | undefined {
  const { model, ...rest } = request as GenerateContentRequest & { model?: unknown };
  const hasProofs = rest.contents.some(({ parts = [] }) => parts.some(isOurs));
  if (!hasProofs) return model === undefined ? undefined : rest;
  const steps = createSteps();
  const contents = modelTurns(rest.contents, steps).map(({ role, parts }) => ({
    role,
    parts: role === 'model' ? [...signedParts(parts, steps)] : parts.map(({ part }) => part),
  }));
  return { ...rest, contents: contents.filter(({ parts }) => parts.length > 0) };
}

function isOurs({ thoughtSignature: signature }: GeminiPart): boolean {
  return signature?.startsWith(OWN) === true;
}

/** Signatures are packed by the number of their call. A call of another model gets what Google asks for in that case. */
function signedParts(parts: readonly PlacedPart[], steps: Steps): readonly GeminiPart[] {
  const proofs = new Map<string, string>();
  for (const { part } of parts) {
    const own = readProof(part.thoughtSignature);
    if (own === undefined) continue;
    for (const { mark, proof } of unpackProofs('google', own.signature, steps)) proofs.set(mark, proof);
  }
  let calls = 0;
  return parts.flatMap(({ part }) => {
    const { thoughtSignature: given, ...rest } = part;
    const number = calls;
    if (part.functionCall !== undefined) calls += 1;
    if (!isOurs(part)) return [part];
    if (part.functionCall !== undefined) {
      return [{ ...rest, thoughtSignature: proofs.get(`c${number}`) ?? LOST_SIGNATURE }];
    }
    const signature = proofs.get('p');
    if (signature !== undefined) return [{ ...rest, thoughtSignature: signature }];
    return rest.text === '' ? [] : [rest];
  });
}

/** What a request names that the API keeps: a cached prompt, uploaded files, and stores of files that a tool searches. */
export function storedInGemini(request: GenerateContentRequest): readonly Reference[] {
  const found: Reference[] = [];
  const note = (id: unknown, path: string) => {
    if (typeof id === 'string') found.push({ id, path });
  };
  const lookAt = (parts: unknown, path: string): void => {
    if (!Array.isArray(parts)) return;
    for (const [index, part] of parts.entries()) {
      const { fileData: file, functionResponse: result } = isRecord(part) ? part : {};
      const uri = isRecord(file) ? file.fileUri : undefined;
      if (typeof uri === 'string' && isUploaded(uri)) note(uri, `${path}/${index}/fileData/fileUri`);
      if (isRecord(result)) lookAt(result.parts, `${path}/${index}/functionResponse/parts`);
    }
  };
  note(request.cachedContent, '/cachedContent');
  lookAt(request.systemInstruction?.parts, '/systemInstruction/parts');
  for (const [index, { parts }] of request.contents.entries()) lookAt(parts, `/contents/${index}/parts`);
  for (const [index, tool] of (request.tools ?? []).entries()) {
    const { fileSearch: search } = tool as { fileSearch?: unknown };
    const names = isRecord(search) ? search.fileSearchStoreNames : undefined;
    if (!Array.isArray(names)) continue;
    for (const name of names) note(name, `/tools/${index}/fileSearch/fileSearchStoreNames`);
  }
  return found;
}
