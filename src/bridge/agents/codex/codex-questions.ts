import type { QuestionValues } from '../../contract/question-form.ts';
import { PLAIN_OPTIONS } from '../agent-connection.ts';
import type { PermissionQuestion } from '../agent-provider.ts';
import { asObject, textOf } from '../agent-text.ts';
import { formQuestion, readForm, readQuestions } from '../question-form.ts';

type Fields = Readonly<Record<string, unknown>>;

/** A request of Codex as a question, with the responses that Codex takes. */
interface CodexRequest {
  readonly question: PermissionQuestion;
  readonly decline: unknown;
  /** `values`: of a question with a form. */
  accept(values: QuestionValues): unknown;
}

const ACCEPT = { accept: () => ({ decision: 'accept' }), decline: { decision: 'decline' } };

const REQUESTS: Readonly<Record<string, (params: Fields) => CodexRequest>> = {
  'item/commandExecution/requestApproval': (params) => ({
    question: approval(params, 'execute', params.command ?? params.reason),
    ...ACCEPT,
  }),
  'item/fileChange/requestApproval': (params) => ({
    question: approval(params, 'edit', params.reason ?? 'change files'),
    ...ACCEPT,
  }),
  'item/permissions/requestApproval': (params) => ({
    question: approval(params, 'other', params.reason ?? 'further permissions'),
    accept: () => ({ permissions: withoutNulls(params.permissions), scope: 'turn' }),
    decline: { permissions: {}, scope: 'turn' },
  }),
  // A server of the Model Context Protocol asks, through Codex.
  'mcpServer/elicitation/request'({ message, mode, requestedSchema }) {
    // A page to open, and the forms of extensions, cannot be shown.
    const form = mode === 'form' ? readForm(requestedSchema) : undefined;
    return {
      question: formQuestion('', textOf(message), form),
      accept: (content) => ({ action: 'accept', content, _meta: null }),
      decline: { action: 'decline', content: null, _meta: null },
    };
  },
  'item/tool/requestUserInput'({ itemId, questions }) {
    const form = readQuestions(questions);
    const title = form?.fields.map(({ description, title: short }) => description || short).join(' ') ?? '';
    return {
      question: formQuestion(textOf(itemId), title, form),
      accept: (values) => ({
        answers: Object.fromEntries(
          Object.entries(values).map(([id, value]) => [id, { answers: [value].flat().map(String) }]),
        ),
      }),
      decline: { answers: {} },
    };
  },
};

/** Reads a request of Codex; undefined when Codex asks for something else. */
export function readRequest(method: string, params: Fields): CodexRequest | undefined {
  return Object.hasOwn(REQUESTS, method) ? REQUESTS[method]?.(params) : undefined;
}

function approval(params: Fields, toolKind: string, title: unknown): PermissionQuestion {
  const shown = typeof title === 'string' && title !== '' ? title : 'a command';
  return { toolCallId: textOf(params.itemId), title: shown, toolKind, input: params, options: PLAIN_OPTIONS };
}

/** What is asked for has null where nothing is asked; what is granted leaves it out. */
function withoutNulls(permissions: unknown): object {
  return Object.fromEntries(Object.entries(asObject(permissions)).filter(([, value]) => value !== null));
}
