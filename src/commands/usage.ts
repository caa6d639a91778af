import { styleText } from 'node:util';
import type { Command } from 'commander';
import type { TrestleClient } from '../client/trestle-client.ts';
import { TrestleError } from '../client/trestle-error.ts';
import { boundedFetch } from '../platform/http/bounded-fetch.ts';
import type { ControlResult } from '../system/controls.ts';
import { type CommandContext, fail, type Options, print } from './command-context.ts';
import { callFromCommand } from './load-settings.ts';
import { findLogin, hostOf, refuseEnded, type ServerLogin } from './server-login.ts';
import { commandAction, oneOf, table } from './sessions.ts';
import { printable } from './turn-display.ts';

type Summary = Awaited<ReturnType<TrestleClient['sessions']['list']>>['sessions'][number];
type Report = ControlResult<'completions', 'usage.report'>;
type Counts = Report['total'];

interface SessionSums {
  readonly by: 'agent' | 'model' | 'day' | 'owner';
  readonly data: readonly (SessionCounts & { readonly group: string })[];
  readonly total: SessionCounts;
  /** True: there are more sessions than were counted. */
  readonly truncated: boolean;
}

interface SessionCounts {
  readonly sessions: number;
  readonly turns: number;
  readonly tokens: number;
  /** Null: no agent has reported a cost. */
  readonly costUsd: number | null;
}

const GROUPS = ['model', 'day', 'key', 'owner', 'api', 'team', 'tag', 'outcome', 'hour'] as const;
const MAX_PAGES = 10;
const PAGE = 200;
const REPORT_MS = 30_000;
const MAX_REPORT_BYTES = 16 * 1024 * 1024;

/** `trestle usage`. */
export function registerUsage(program: Command, context: CommandContext): void {
  program
    .command('usage')
    .summary('show what completions and sessions have cost')
    .description(
      'Shows what completions calls and agent sessions have cost: those of everyone on this machine, or only yours after trestle login. A session counts in full on the day of its last turn, with the cost that its agent reported; calls of the built-in agent appear in both tables.',
    )
    .option('--by <what>', `group by ${GROUPS.join(', ')} (default: model)`)
    .option('--from <day>', 'first day, in UTC, such as 2030-01-01 (default: 30 days ago)')
    .option('--to <day>', 'last day, in UTC (default: today)')
    .option('--tag <name>', 'only calls with this tag')
    .option('--owner <id>', 'only this owner, such as user:usr_... or team:<id>')
    .addHelpText(
      'after',
      '\nExamples:\n  trestle usage\n  trestle usage --by day --from 2030-01-01\n  trestle usage --json',
    )
    .action(
      commandAction(context)(() => async (trestle, command, options) => {
        const by = oneOf(options.by ?? 'model', GROUPS, '--by', context);
        const login = await findLogin(options, context);
        const query = { group_by: by, ...textOptions(options, ['from', 'to', 'owner', 'tag']) };
        const completions =
          login === undefined
            ? await callFromCommand(command, context, 'completions', 'usage.report', query)
            : await readReport(login, query, context);
        const sessions = await sumSessions(trestle, completions, by, textOptions(options, ['owner'])).catch(
          (error: unknown) => {
            // A user whose plan includes no agents has calls, but no sessions.
            if (!(error instanceof TrestleError) || error.code !== 'FORBIDDEN') throw error;
            return { by: 'agent', data: [], total: NOTHING, truncated: false } as const;
          },
        );
        print(command, context, { completions, sessions }, usageText(completions, sessions, context.color));
      }),
    );
}

function textOptions(options: Options, names: readonly string[]): Readonly<Record<string, string>> {
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = options[name];
      return typeof value === 'string' ? [[name, value]] : [];
    }),
  );
}

/** Reads `/usage` of a server with the token of a login. */
async function readReport(
  { url, token }: ServerLogin,
  query: Readonly<Record<string, string>>,
  context: CommandContext,
): Promise<Report> {
  const limits = { timeoutMs: REPORT_MS, maxBytes: MAX_REPORT_BYTES };
  const headers = { authorization: `Bearer ${token}` };
  const response = await boundedFetch(`${url}/usage?${new URLSearchParams(query)}`, { headers }, limits).catch(() =>
    fail(context, `the server at ${hostOf(url)} does not answer`),
  );
  if (response.status === 401) return refuseEnded(url, context);
  const body = (await response.json().catch(() => ({}))) as Report & {
    readonly error?: { readonly message?: unknown };
  };
  if (response.ok && Array.isArray(body.data)) return body;
  const { message } = body.error ?? {};
  return fail(
    context,
    typeof message === 'string' ? printable(message) : `the server at ${hostOf(url)} has no completions API`,
  );
}

/** Adds up the sessions, archived ones too, whose last turn was in the days of the report. */
async function sumSessions(
  trestle: TrestleClient,
  { from, to }: Pick<Report, 'from' | 'to'>,
  groupBy: string,
  owner: Readonly<Record<string, string>>,
): Promise<SessionSums> {
  const by = groupBy === 'model' || groupBy === 'day' || groupBy === 'owner' ? groupBy : 'agent';
  const groups = new Map<string, SessionCounts>();
  let total = NOTHING;
  let truncated = false;
  for (const state of [{}, { state: 'archived' as const }]) {
    let cursor: string | null = '';
    for (let pages = 0; cursor !== null; pages += 1) {
      if (pages === MAX_PAGES) {
        truncated = true;
        break;
      }
      const page = await trestle.sessions.list({ ...owner, ...state, limit: PAGE, ...(cursor !== '' && { cursor }) });
      for (const session of page.sessions) {
        const day = dayOf(session);
        if (day < from || day > to) continue;
        const { providerId: agent, owner: ofOwner } = session;
        const group = { day, agent, model: modelOf(session), owner: ofOwner }[by];
        groups.set(group, add(groups.get(group) ?? NOTHING, session));
        total = add(total, session);
      }
      // The newest come first: what follows is older.
      const last = page.sessions.at(-1);
      cursor = last !== undefined && dayOf(last) < from ? null : page.nextCursor;
    }
  }
  const data = [...groups].map(([group, counts]) => ({ group, ...counts }));
  data.sort((one, other) => (by === 'day' ? (one.group < other.group ? -1 : 1) : other.tokens - one.tokens));
  return { by, data, total, truncated };
}

const NOTHING: SessionCounts = { sessions: 0, turns: 0, tokens: 0, costUsd: null };

function dayOf({ updatedAt }: Summary): string {
  return new Date(updatedAt).toISOString().slice(0, 10);
}

/** As completions counts it: the options of a demo model are not part of its name. */
function modelOf({ model }: Summary): string {
  return model.startsWith('demo/') ? (model.split('?', 1)[0] ?? '') : model;
}

function add(counts: SessionCounts, { turns, usage, costUsd }: Summary): SessionCounts {
  return {
    sessions: counts.sessions + 1,
    turns: counts.turns + turns,
    tokens: counts.tokens + usage.totalTokens,
    costUsd: costUsd === null ? counts.costUsd : (counts.costUsd ?? 0) + costUsd,
  };
}

function usageText(completions: Report, sessions: SessionSums, color: boolean): string {
  const { from, to, group_by: by, data, total } = completions;
  const bold = (text: string) => (color ? styleText('bold', text) : text);
  const calls = (
    group: string,
    { requests, errors, prompt_tokens: input, completion_tokens: output, cost_usd }: Counts,
  ) => [group, ...[requests, errors, input, output].map(String), dollars(cost_usd)];
  const work = (group: string, { sessions: count, turns, tokens, costUsd }: SessionCounts) => [
    group,
    ...[count, turns, tokens].map(String),
    costUsd === null ? '' : dollars(costUsd),
  ];
  const callRows = [
    [by, 'calls', 'errors', 'input', 'output', 'USD'],
    ...data.map((row) => calls(row.group || '-', row)),
    ...(data.length > 1 ? [calls('total', total)] : []),
  ];
  const workRows = [
    [sessions.by, 'sessions', 'turns', 'tokens', 'USD'],
    ...sessions.data.map((row) => work(row.group || '-', row)),
    ...(sessions.data.length > 1 ? [work('total', sessions.total)] : []),
  ];
  return [
    `${bold(`Completions, ${from} to ${to}`)}\n`,
    data.length === 0 ? 'No calls.\n' : table(callRows, 1),
    `\n${bold('Sessions of agents')}\n`,
    sessions.data.length === 0 ? 'No sessions.\n' : table(workRows, 1),
    sessions.truncated ? `Only the latest ${MAX_PAGES * PAGE} sessions are counted.\n` : '',
  ].join('');
}

/** Small amounts keep their first digits. */
function dollars(usd: number): string {
  return usd.toFixed(usd === 0 || usd >= 0.01 ? 2 : 6);
}
