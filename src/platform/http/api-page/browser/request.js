/** @import { ApiRequest, Operation, RequestValues } from './openapi-types.d.ts' */

/**
 * The request that the form describes, without the token: that is added at the last moment.
 * @param {Operation} operation
 * @param {RequestValues} values
 * @param {string} origin
 * @returns {ApiRequest}
 */
export function buildRequest(operation, values, origin) {
  const contentType = Object.keys(operation.requestBody?.content ?? {})[0];
  /** @type {Record<string, string>} */
  const headers = {};
  if (values.body !== undefined && contentType !== undefined) headers['content-type'] = contentType;
  if (values.eventStream) headers.accept = 'text/event-stream';
  const url = `${origin}${pathOf(operation, values)}${queryOf(operation, values)}`;
  return { method: operation.method, url, headers, body: values.body };
}

/**
 * The names of required parameters that have no value yet.
 * @param {Operation} operation
 * @param {RequestValues} values
 */
export function missingParameters(operation, values) {
  const parameters = operation.parameters ?? [];
  return parameters.filter(({ name, required }) => required && !values.parameters[name]).map(({ name }) => name);
}

/**
 * One command for a POSIX shell. The token stays out of it: it is read from `$TOKEN`.
 * @param {ApiRequest} request
 * @param {boolean} withToken
 */
export function curlCommand({ method, url, headers, body }, withToken) {
  const lines = [`curl ${headers.accept ? '-N ' : ''}${method === 'GET' ? '' : `-X ${method} `}${shellQuote(url)}`];
  for (const [name, value] of Object.entries(headers)) lines.push(`-H ${shellQuote(`${name}: ${value}`)}`);
  if (withToken) lines.push('-H "authorization: Bearer $TOKEN"');
  // Not --data: that would read a file when the text starts with @, and drop line breaks.
  if (body !== undefined) lines.push(`--data-raw ${shellQuote(body)}`);
  return lines.join(' \\\n  ');
}

/**
 * Inside single quotes a POSIX shell changes nothing.
 * @param {string} text
 */
function shellQuote(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/**
 * @param {Operation} operation
 * @param {RequestValues} values
 */
function pathOf({ path, parameters = [] }, values) {
  return path.replaceAll(/\{(\w+)\}/g, (_whole, name) => {
    const value = values.parameters[name] ?? '';
    const multiSegment = parameters.some((parameter) => parameter.name === name && parameter['x-multi-segment']);
    return multiSegment ? value.split('/').map(encodeURIComponent).join('/') : encodeURIComponent(value);
  });
}

/**
 * @param {Operation} operation
 * @param {RequestValues} values
 */
function queryOf({ parameters = [] }, values) {
  const query = new URLSearchParams();
  for (const { name, in: place } of parameters) {
    const value = values.parameters[name];
    if (place === 'query' && value) query.append(name, value);
  }
  return query.size > 0 ? `?${query}` : '';
}
