import { isAbsolute } from 'node:path';
import { AppError } from '../../platform/errors/app-error.ts';
import { RemoteError } from '../../platform/json-rpc/envelope.ts';
import { createKnownSecrets, hideCredentials, isSecretName } from '../../platform/log/hidden-secrets.ts';
import { asObject } from './loose-json.ts';

const MOST_CHARACTERS = 4000;

interface HiddenProgram {
  readonly command: string;
  readonly args: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
}

/** What went wrong between us and an agent, in words for the result of a turn. */
export function describeFailure(error: unknown): string {
  if (error instanceof RemoteError) return withDetails(error.remoteMessage, error.data);
  if (error instanceof AppError) return typeof error.details.reason === 'string' ? error.details.reason : error.code;
  if (!(error instanceof Error)) return String(error);
  return withDetails(error.message, 'data' in error ? error.data : undefined);
}

/** Some agents say what is wrong in the data only, under one of these names. */
function withDetails(message: string, data: unknown): string {
  const { details, message: inner } = asObject(data);
  const more = [details, inner].find((text): text is string => typeof text === 'string' && text !== '');
  return more === undefined || message.includes(more) ? message : `${message}: ${more}`;
}

/**
 * Removes from an agent's words what apps must not learn: credentials of any kind, the secrets that the agent was given, and
 * where its program is (spec/bridge 4.3, rule 2).
 */
export function createHiding(program: HiddenProgram, label: string): (text: string) => string {
  const { command, args, environment } = program;
  // The longest first: one may be the beginning of another.
  const paths = [command, ...args]
    .filter((word) => isAbsolute(word) && word.length > 1)
    .sort((a, b) => b.length - a.length);
  const secrets = Object.entries(environment).flatMap(([name, value]) => (holdsSecret(name) ? [value] : []));
  const known = createKnownSecrets(secrets);
  return (text) => {
    const named = paths.reduce((words, path) => words.replaceAll(path, label), text);
    const hidden = hideCredentials(known.hide(named));
    return hidden.length > MOST_CHARACTERS ? `…${hidden.slice(-MOST_CHARACTERS)}` : hidden;
  };
}

function holdsSecret(name: string): boolean {
  return isSecretName(name) || name.toUpperCase().endsWith('KEY');
}
