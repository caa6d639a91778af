import { Compile, type Validator } from 'typebox/schema';
import { AppError, errorCode } from '../../../platform/errors/app-error.ts';
import { findIssues, firstIssue } from '../../../platform/json/describe-issues.ts';
import { parseJson } from '../../../platform/json/parse-json.ts';
import { PLAIN_OPTIONS } from '../agent-connection.ts';
import type { AgentEvent, PermissionPolicy, Permit, SupervisedTurn } from '../agent-provider.ts';
import type { RequestedToolCall } from './complete-chat.ts';
import type { Tool, ToolContext, ToolOutput } from './tools/tool.ts';

export interface ToolCallOptions {
  readonly call: RequestedToolCall;
  /** The id under which the call is shown; a model's own ids repeat from answer to answer. */
  readonly eventId: string;
  readonly permissions: PermissionPolicy;
  readonly context: ToolContext;
  readonly tools: readonly Tool[];
  report(event: AgentEvent): void;
  readonly permit: SupervisedTurn['permit'];
  readonly deniedPaths?: SupervisedTurn['deniedPaths'];
}

const MAX_OUTPUT_CHARACTERS = 40 * 1024;
const MAX_SHOWN_INPUT = 16 * 1024;
const DENIED =
  'Refused: here you may not change files or run commands. Use the tools that read, and tell the user what you would have done.';
const REJECTED = 'Refused: the user does not permit this.';
const UNANSWERED = 'Refused: this needs a permission, and nobody has given or denied it.';
const UNEXPLAINED = 'Do not try it in another way; ask what to do instead.';
const FILE_ERRORS: Readonly<Record<string, string>> = {
  ENOENT: 'There is no such file or folder; list_files shows what is there.',
  ENOTDIR: 'A part of the path is a file, not a folder.',
  EISDIR: 'It is a folder, not a file.',
  ELOOP: 'A part of the path is a link that is not followed here.',
  EEXIST: 'It exists already.',
  EACCES: 'The system does not permit it.',
  EPERM: 'The system does not permit it.',
  EROFS: 'The file system is read-only.',
  ENOSPC: 'The disk is full.',
  EDQUOT: 'The disk quota is used up.',
  ENAMETOOLONG: 'The path is too long.',
  ENXIO: 'It is not a regular file.',
  EBUSY: 'It is in use.',
};

const SYSTEM_CODE = /^E[A-Z0-9]{1,20}$/;

const validators = new WeakMap<Tool['parameters'], Validator>();

/** Runs the tool call of the model, if it is possible and permitted, and returns the text for the model. */
export async function runToolCall(options: ToolCallOptions): Promise<string> {
  const { call, eventId, tools, report } = options;
  const tool = tools.find(({ name }) => name === call.function.name);
  const read = tool === undefined ? unknownTool(call.function.name, tools) : readInput(tool, call.function.arguments);
  const shownName = call.function.name.slice(0, 100);
  const shown = {
    kind: 'tool_call' as const,
    toolCallId: eventId,
    title: tool === undefined || read.wrong !== undefined ? shownName : tool.title(read.input).slice(0, 500),
    toolKind: tool?.toolKind ?? 'other',
  };
  const input = shownInput(read.input, call.function.arguments);
  report({ ...shown, status: 'pending', input });
  const end = (
    status: 'completed' | 'failed',
    { text, locations, changes = [], exitCode, plan }: ToolOutput,
  ): string => {
    const output = text.length > MAX_OUTPUT_CHARACTERS ? `${text.slice(0, MAX_OUTPUT_CHARACTERS)}\n[cut]` : text;
    const done = { ...(changes.length > 0 && { changes }), ...(exitCode !== undefined && { exitCode }) };
    report({ ...shown, status, input, output, ...(locations && { locations }), ...done });
    if (plan !== undefined) report({ kind: 'plan', entries: [...plan] });
    return output;
  };
  if (tool === undefined || read.wrong !== undefined) return end('failed', { text: read.wrong ?? '' });
  if (tool.needsPermission) {
    const question = {
      toolCallId: eventId,
      title: shown.title,
      toolKind: shown.toolKind,
      // All of it, and not what is shown: rules look at it.
      input: read.input,
      options: PLAIN_OPTIONS,
    };
    const permit = await options.permit(question, options.permissions, options.context.signal);
    options.context.signal.throwIfAborted();
    if (permit.decision === 'denied') return end('failed', { text: refusalOf(permit) });
  }
  report({ ...shown, status: 'in_progress', input });
  const output = await tool.run(read.input, underRules(options, tool)).catch(failure);
  return end(output.failed === true ? 'failed' : 'completed', output);
}

/** Permission rules count for all that a tool reads. A search reads, too. */
function underRules({ context, deniedPaths }: ToolCallOptions, { toolKind }: Tool): ToolContext {
  if (deniedPaths === undefined) return context;
  const kinds = toolKind === 'search' ? ['read', 'search'] : ['read'];
  const { root, files } = context;
  const denials = () => deniedPaths(kinds, root.path);
  return { ...context, root: { ...root, denials }, ...(files !== undefined && { files: { ...files, denials } }) };
}

/** What the model reads of a denial. A reason says what to do, so that nothing needs to be asked. */
function refusalOf({ isAsked, optionId, reason, answeredBy, rule }: Permit): string {
  if (!isAsked) return DENIED;
  if (reason !== undefined) return `${REJECTED} The user says: ${reason}`;
  const isAnswered = optionId !== undefined || answeredBy !== undefined || rule !== undefined;
  return `${isAnswered ? REJECTED : UNANSWERED} ${UNEXPLAINED}`;
}

interface ReadInput {
  readonly input?: unknown;
  /** The text for the model instead of a result. */
  readonly wrong?: string;
}

function unknownTool(name: string, tools: readonly Tool[]): ReadInput {
  const known = tools.map((tool) => tool.name).join(', ');
  return { wrong: `Error: there is no tool "${name.slice(0, 100)}". There are: ${known}.` };
}

function readInput(tool: Tool, text: string): ReadInput {
  let input: unknown;
  try {
    // No arguments at all stands for none: some models leave the text empty for tools without required ones.
    input = parseJson(text.trim() === '' ? '{}' : text);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    return { wrong: `Error: the arguments are not valid JSON: ${String(error.details.reason)}. Send one JSON object.` };
  }
  const validator = validators.get(tool.parameters) ?? Compile(tool.parameters);
  validators.set(tool.parameters, validator);
  if (validator.Check(input)) return { input };
  return { input, wrong: `Error: the arguments do not fit: ${firstIssue(findIssues(validator, input))}.` };
}

function failure(error: unknown): ToolOutput {
  const code = errorCode(error);
  if (code === 'TOOL_CALL_REFUSED')
    return { text: `Error: ${String((error as AppError).details.reason)}`, failed: true };
  if (error instanceof AppError || !SYSTEM_CODE.test(code)) throw error;
  return { text: `Error: ${FILE_ERRORS[code] ?? `the system answered ${code}.`}`, failed: true };
}

/** Enough of the input for people to see what was asked. */
function shownInput(input: unknown, text: string): unknown {
  if (input === undefined || text.length > MAX_SHOWN_INPUT) return text.slice(0, MAX_SHOWN_INPUT);
  return input;
}
