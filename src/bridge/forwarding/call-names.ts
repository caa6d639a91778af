import { AppError } from '../../platform/errors/app-error.ts';

/** What a call is about: a session, a job, a job that its idempotency key stands for, or the jobs of a node. */
export interface CallName {
  readonly kind: 'session' | 'job' | 'job-key' | 'jobs';
  readonly name: string;
}

export interface CallNames {
  /** The first one that has a place decides where the call goes. */
  readonly names: readonly CallName[];
  /** Empty when the call names no thread. */
  readonly threadId: string;
  /**
   * When the place of what it is about is settled: before the call is sent (it makes something that must not be made
   * twice), after it went well, or not at all.
   */
  readonly binds: 'before' | 'after' | 'never';
  /** Whether it may make something new, which nobody but its caller owns. */
  readonly makes: boolean;
}

const NONE: CallNames = { names: [], threadId: '', binds: 'never', makes: true };
const LONGEST_NAME = 256;

/** Reads, from a call that nobody has checked yet, what it is about. */
export function readCallNames(method: string, params: unknown): CallNames {
  const given = Object(params) as Readonly<Record<string, unknown>>;
  const threadId = nameOf(given, 'threadId');
  const session = named('session', nameOf(given, 'sessionId'));
  switch (method) {
    case 'session.start':
    case 'session.message': {
      if (session.length === 0) throw invalid('sessionId must have 1 to 256 characters');
      const isStart = method === 'session.start';
      return { names: session, threadId, binds: isStart ? 'before' : 'after', makes: isStart };
    }
    case 'session.cancel':
    case 'session.close':
      return { names: session, threadId, binds: 'never', makes: false };
    case 'app.jobs.submit': {
      const names = [...session, ...named('job-key', nameOf(given, 'idempotencyKey'))];
      return { names, threadId, binds: 'before', makes: true };
    }
    case 'app.jobs.get':
      return { names: named('job', nameOf(given, 'jobId')), threadId, binds: 'never', makes: false };
    default:
      return NONE;
  }
}

/** The names that a job got from the node that took it, and the node itself, so that lists of jobs ask it. */
export function readJobNames(result: unknown, nodeId: string): readonly CallName[] {
  const given = Object(result) as Readonly<Record<string, unknown>>;
  const names = [...named('job', nameOf(given, 'jobId')), ...named('session', nameOf(given, 'sessionId'))];
  return [...names, { kind: 'jobs', name: nodeId }];
}

function named(kind: CallName['kind'], name: string): readonly CallName[] {
  return name === '' ? [] : [{ kind, name }];
}

/** Empty when it is not given. What could not be stored, or would be stored as something else, is refused. */
function nameOf(given: Readonly<Record<string, unknown>>, member: string): string {
  const value = given[member];
  if (value === undefined || value === '') return '';
  const isName =
    typeof value === 'string' && value.length <= LONGEST_NAME && value.isWellFormed() && !value.includes('\0');
  if (!isName) throw invalid(`${member} must be a text of at most ${LONGEST_NAME} characters`);
  return value;
}

function invalid(reason: string): AppError {
  return new AppError('INVALID_PARAMS', { reason });
}
