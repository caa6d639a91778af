import type { TLocalizedValidationError } from 'typebox/error';
import type { Validator } from 'typebox/schema';

/** One thing that is wrong with a value: where (a JSON pointer) and how to mend it. */
export interface Issue {
  readonly path: string;
  readonly message: string;
}

const MAX_PATH_LENGTH = 200;
const MAX_ISSUES = 8;
/** The validator takes seconds to explain what is wrong with millions of values, though it finds it in no time. */
const MAX_EXPLAINED_VALUES = 5000;
const TYPE_NAMES: Readonly<Record<string, string>> = {
  array: 'an array',
  boolean: 'a boolean',
  integer: 'an integer',
  number: 'a number',
  object: 'an object',
  string: 'a string',
};

/** What is wrong with a value that did not fit: the first few issues, or none of them where it is too large to tell. */
export function findIssues(validator: Validator, value: unknown): Issue[] {
  return valuesLeft(value, MAX_EXPLAINED_VALUES) > 0 ? describeIssues(validator.Errors(value)[1]) : [];
}

/** The validator's findings as a caller can use them: one issue per field, alternatives of a union in one message. */
function describeIssues(errors: readonly TLocalizedValidationError[]): Issue[] {
  const issues: { path: string; message: string; alternative: boolean }[] = [];
  for (const error of errors) {
    const alternative = /\/anyOf\/\d+$/.test(error.schemaPath);
    for (const issue of toIssues(error)) {
      if (issues.length >= MAX_ISSUES) break;
      const known = issues.find(({ path }) => path === issue.path);
      if (known === undefined) issues.push({ ...issue, alternative });
      else if (known.alternative && alternative) known.message += ` or ${issue.message.replace(/^must be /, '')}`;
    }
  }
  return issues.map(({ path, message }) => ({ path: path.slice(0, MAX_PATH_LENGTH), message }));
}

/** The first issue as a sentence without its stop: `routing.steps.0.prompt must be a string`. */
export function firstIssue(issues: readonly Issue[]): string {
  const [issue] = issues;
  if (issue === undefined) return 'they do not fit the schema';
  const field = issue.path.slice(1).replaceAll('/', '.').replaceAll('~1', '/').replaceAll('~0', '~');
  return `${field === '' ? 'params' : field} ${issue.message}`;
}

function toIssues(error: TLocalizedValidationError): Issue[] {
  const path = error.instancePath;
  switch (error.keyword) {
    case 'required':
      return error.params.requiredProperties.map((name) => ({ path: member(path, name), message: 'is required' }));
    // `additionalProperties: false` says so for each of them, before it says so for all.
    case 'boolean':
      return [{ path, message: 'is not known here: leave it out' }];
    case 'additionalProperties':
      return [];
    case 'type':
      return [{ path, message: `must be ${[error.params.type].flat().map(typeName).join(' or ')}` }];
    case 'const':
      return [{ path, message: `must be ${JSON.stringify(error.params.allowedValue)}` }];
    case 'enum':
      return [
        { path, message: `must be ${error.params.allowedValues.map((value) => JSON.stringify(value)).join(' or ')}` },
      ];
    default:
      return [{ path, message: error.message }];
  }
}

/** What counting the value, and all that is in it, leaves of an allowance: 0 at once when that is used up. */
function valuesLeft(value: unknown, allowed: number): number {
  let left = allowed - 1;
  if (typeof value !== 'object' || value === null) return left;
  const members = Array.isArray(value) ? value : Object.values(value);
  if (members.length > left) return 0;
  for (const member of members) {
    left = valuesLeft(member, left);
    if (left <= 0) return 0;
  }
  return left;
}

function typeName(type: string): string {
  return TYPE_NAMES[type] ?? type;
}

function member(path: string, name: string): string {
  return `${path}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
}
