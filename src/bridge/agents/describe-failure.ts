import { AppError } from '../../platform/errors/app-error.ts';
import { RemoteError } from '../../platform/json-rpc/remote-error.ts';
import { hideCredentials } from '../../platform/log/hide-credentials.ts';
import { createKnownSecrets } from '../../platform/log/known-secrets.ts';
import { isSecretName } from '../../platform/log/secret-names.ts';
import { asObject } from './loose-json.ts';

const MOST_CHARACTERS = 4000;

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

/** Takes out of an agent's words what it must not say: credentials of any kind, and the secrets that it was given. */
export function createHiding(environment: Readonly<Record<string, string>>): (text: string) => string {
  const secrets = Object.entries(environment).flatMap(([name, value]) => (holdsSecret(name) ? [value] : []));
  const known = createKnownSecrets(secrets);
  return (text) => {
    const hidden = hideCredentials(known.hide(text));
    return hidden.length > MOST_CHARACTERS ? `…${hidden.slice(-MOST_CHARACTERS)}` : hidden;
  };
}

function holdsSecret(name: string): boolean {
  return isSecretName(name) || name.toUpperCase().endsWith('KEY');
}
