import type { Dialect } from '../dialect.ts';
import { pathSegment } from '../upstream-url.ts';
import type { OpenaiStreamState } from './openai-answer.ts';
import { openaiDialect } from './openai-dialect.ts';
import { encodeOpenaiRequest } from './openai-request.ts';

/** The newest of the versions that Azure promised to keep; another one stands in the base URL's query. */
const API_VERSION = '2024-10-21';

/**
 * OpenAI's body under Azure's two forms of URL. `.../openai/v1` takes the deployment as the model; everything else is
 * the older form, where the deployment is part of the path.
 */
export const azureDialect: Dialect<OpenaiStreamState> = {
  ...openaiDialect,
  name: 'azure',
  encodeRequest(request, context) {
    const refuses = ['reasoning_content', ...(context.refuses ?? [])];
    const encoded = encodeOpenaiRequest(request, { ...context, refuses });
    return { ...encoded, path: azurePath(context.baseUrl ?? '', context.model, '/chat/completions') };
  },
};

export function azurePath(baseUrl: string, deployment: string, operation: string): string {
  const [base = '', query = ''] = baseUrl.split('?', 2);
  const path = base.replace(/\/{1,4}$/, '');
  if (path.endsWith('/openai/v1')) return operation;
  const version = query.includes('api-version=') ? '' : `?api-version=${API_VERSION}`;
  if (path.includes('/openai/deployments/')) return `${operation}${version}`;
  const root = path.endsWith('/openai') ? '' : '/openai';
  return `${root}/deployments/${pathSegment(deployment)}${operation}${version}`;
}
