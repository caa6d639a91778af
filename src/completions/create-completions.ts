import type { Clock } from '../platform/clock/clock.ts';
import type { ErrorForBody, HttpSurface } from '../platform/http/surface.ts';
import type { MakeId } from '../platform/ids/sortable-id.ts';
import { createCompletionsAccess } from './access.ts';
import { ApiError } from './contract/api-error.ts';
import { completionsErrors, errorType } from './errors.ts';
import { createChatCompletion } from './pipeline/chat-completion.ts';
import { completionsRoutes } from './routes.ts';
import type { CompletionsSettings } from './settings.ts';

export interface Completions {
  readonly surface: HttpSurface;
  reload(settings: CompletionsSettings): void;
}

export interface CompletionsOptions {
  readonly settings: CompletionsSettings;
  readonly clock: Clock;
  readonly makeId: MakeId;
}

export function createCompletions({ settings, clock, makeId }: CompletionsOptions): Completions {
  const access = createCompletionsAccess(settings);
  return {
    surface: {
      name: 'completions',
      title: 'Completions',
      prefixes: ['/v1', '/chat', '/models'],
      routes: completionsRoutes({ access, chatCompletion: createChatCompletion({ clock, makeId }) }),
      upgrades: [],
      errors: completionsErrors,
      errorSchema: ApiError,
      errorBody,
      isOpen: access.isOpen,
      credentialSetting: 'COMPLETIONS_MASTER_KEY',
    },
    reload: access.reload,
  };
}

function errorBody({ status, code, message, details }: ErrorForBody) {
  return { error: { message, type: errorType(status), param: paramOf(details.issues), code: code.toLowerCase() } };
}

/** The field that is wrong, as `messages.0.role`. */
function paramOf(issues: unknown): string | null {
  const [first] = Array.isArray(issues) ? (issues as { path: string }[]) : [];
  return first === undefined || first.path === '' ? null : first.path.slice(1).replaceAll('/', '.');
}
