import type { QuestionForm, QuestionValues } from '../../contract/question-form.ts';
import { type PermissionPolicy, PLAIN_OPTIONS } from '../agent-connection.ts';
import type { AgentEvent, PermissionQuestion } from '../agent-provider.ts';
import { asObject, textOf } from '../agent-text.ts';
import { readForm, readQuestions } from '../question-form.ts';

type Fields = Readonly<Record<string, unknown>>;

/** A request of Codex that only a person can answer, with the responses that Codex takes. */
interface FormQuestion {
  readonly toolCallId: string;
  readonly title: string;
  readonly form: QuestionForm | undefined;
  readonly decline: unknown;
  accept(values: QuestionValues): unknown;
}

/** Reads a request as a question with a form; undefined when it is another request. */
export function readFormQuestion(method: string, params: Fields): FormQuestion | undefined {
  switch (method) {
    // A server of the Model Context Protocol asks, through Codex.
    case 'mcpServer/elicitation/request':
      return {
        toolCallId: '',
        title: textOf(params.message),
        // A page to open, and the forms of extensions, cannot be shown.
        form: params.mode === 'form' ? readForm(params.requestedSchema) : undefined,
        decline: { action: 'decline', content: null, _meta: null },
        accept: (content) => ({ action: 'accept', content, _meta: null }),
      };
    case 'item/tool/requestUserInput': {
      const form = readQuestions(params.questions);
      return {
        toolCallId: textOf(params.itemId),
        title: form?.fields.map(({ description, title }) => description || title).join(' ') ?? '',
        form,
        decline: { answers: {} },
        accept: (values) => ({
          answers: Object.fromEntries(
            Object.entries(values).map(([id, value]) => [id, { answers: [value].flat().map(String) }]),
          ),
        }),
      };
    }
    default:
      return undefined;
  }
}

interface ApprovalAnswer {
  readonly response: unknown;
  /** For questions of permission. */
  readonly event?: AgentEvent;
}

interface ApprovalRow {
  readonly toolKind: string;
  title(params: Fields): unknown;
  allow(params: Fields): unknown;
  deny: unknown;
}

const DECISION = { allow: () => ({ decision: 'accept' }), deny: { decision: 'decline' } };

const TABLE: Readonly<Record<string, ApprovalRow>> = {
  'item/commandExecution/requestApproval': {
    ...DECISION,
    toolKind: 'execute',
    title: ({ command, reason }) => command ?? reason,
  },
  'item/fileChange/requestApproval': { ...DECISION, toolKind: 'edit', title: ({ reason }) => reason ?? 'change files' },
  'item/permissions/requestApproval': {
    toolKind: 'other',
    title: ({ reason }) => reason ?? 'further permissions',
    allow: ({ permissions }) => ({ permissions: withoutNulls(permissions), scope: 'turn' }),
    deny: { permissions: {}, scope: 'turn' },
  },
};

/** A request of Codex as a question for a person; undefined when the request is not about permission. */
export function questionOf(method: string, params: Fields): PermissionQuestion | undefined {
  const row = Object.hasOwn(TABLE, method) ? TABLE[method] : undefined;
  if (row === undefined) return undefined;
  const toolCallId = typeof params.itemId === 'string' ? params.itemId : '';
  return { toolCallId, title: titleOf(row, params), toolKind: row.toolKind, input: params, options: PLAIN_OPTIONS };
}

/** Answers a request of Codex by a policy; undefined when the request is not about permission. */
export function answerApproval(method: string, params: Fields, policy: PermissionPolicy): ApprovalAnswer | undefined {
  const row = Object.hasOwn(TABLE, method) ? TABLE[method] : undefined;
  if (row === undefined) return undefined;
  return {
    response: policy === 'allow' ? row.allow(params) : row.deny,
    event: {
      kind: 'permission',
      title: titleOf(row, params),
      decision: policy === 'allow' ? 'allowed' : 'denied',
      ...(typeof params.itemId === 'string' && { toolCallId: params.itemId }),
    },
  };
}

function titleOf(row: ApprovalRow, params: Fields): string {
  const title = row.title(params);
  return typeof title === 'string' && title !== '' ? title : 'a command';
}

/** What is asked for has null where nothing is asked; what is granted leaves it out. */
function withoutNulls(permissions: unknown): object {
  return Object.fromEntries(Object.entries(asObject(permissions)).filter(([, value]) => value !== null));
}
