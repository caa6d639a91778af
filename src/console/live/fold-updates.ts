import type { UpdatePage } from '../../bridge/contract/workbench.ts';

export type Update = UpdatePage['updates'][number];

/** What the conversation shows: one item for a text, a thought, a tool call, a question, the end of a turn. */
export type Item =
  | (Common & { readonly kind: 'text' | 'thinking'; readonly text: string; readonly until: number })
  | (Common & { readonly kind: 'tool'; readonly call: ToolCall })
  | (Common & {
      readonly kind: 'note';
      readonly text: string;
      readonly tone: 'plain' | 'allowed' | 'denied';
      readonly decidedBy?: Decider;
      /** About a message that was not sent: the task of its turn. */
      readonly isUnsent?: true;
    })
  /** The task as it is stored with the update: the turn itself may not be known to the page. */
  | (Common & { readonly kind: 'start'; readonly prompt: string })
  | (Common & { readonly kind: 'end'; readonly status: string; readonly message: string; readonly code: string });

/** Who or what has answered an agent: a person by their principal, or a rule. */
export type Decider = Pick<Extract<Update, { kind: 'permission' }>, 'answeredBy' | 'rule'>;

interface Common {
  /** The same for an item as long as it exists. */
  readonly key: string;
  readonly at: number;
  readonly turnId: string;
  readonly providerId?: string | undefined;
  /** Of a multi-agent run: the step that it belongs to. */
  readonly stepIndex?: number;
}

export type ToolCall = Pick<
  Extract<Update, { kind: 'tool_call' }>,
  | 'toolCallId'
  | 'title'
  | 'status'
  | 'toolKind'
  | 'input'
  | 'output'
  | 'locations'
  | 'changes'
  | 'exitCode'
  | 'durationMs'
>;
export type PlanEntry = Extract<Update, { kind: 'plan' }>['entries'][number];
export type TurnUsage = Omit<Extract<Update, { kind: 'usage' }>, 'kind' | 'seq' | 'at' | 'turnId'>;

/** What updates come to. Items are never changed in place, so that only what has changed is drawn again. */
export interface Folded {
  readonly items: readonly Item[];
  readonly plan: readonly PlanEntry[];
  readonly usage: TurnUsage | undefined;
  readonly lastSeq: number;
}

export const NOTHING: Folded = { items: [], plan: [], usage: undefined, lastSeq: 0 };

const ENDS: ReadonlySet<string> = new Set(['completed', 'failed', 'cancelled']);
const RUNS: ReadonlyMap<string, string> = new Map([
  ['multi_agent_started', 'Several agents work on this'],
  ['multi_agent_step_started', 'Step started'],
  ['multi_agent_step_completed', 'Step ended'],
]);

/** Adds updates in order. An update that is there already (by its number) changes nothing. */
export function foldUpdates(before: Folded, updates: readonly Update[]): Folded {
  let { plan, usage, lastSeq } = before;
  const items = [...before.items];
  for (const update of updates) {
    if (update.seq <= lastSeq) continue;
    lastSeq = update.seq;
    if (isKind(update, 'plan')) plan = update.entries;
    else if (isKind(update, 'usage')) usage = update;
    else addItem(items, update);
  }
  return { items, plan, usage, lastSeq };
}

/** The last member of the union takes any kind, so a comparison alone does not narrow. */
function isKind<Kind extends 'plan' | 'usage' | 'tool_call' | 'permission'>(
  update: Update,
  kind: Kind,
): update is Extract<Update, { kind: Kind }> {
  return update.kind === kind;
}

function addItem(items: Item[], update: Update): void {
  const { seq, at, turnId, kind } = update;
  const common = {
    key: `${seq}`,
    at,
    turnId,
    ...(update.stepIndex !== undefined && {
      providerId: `${update.stepIndex + 1} ${update.providerId ?? ''}`,
      stepIndex: update.stepIndex,
    }),
  };
  if (kind === 'text' || kind === 'thinking') addText(items, common, kind, 'text' in update ? `${update.text}` : '');
  else if (isKind(update, 'tool_call')) addCall(items, common, update);
  else if (isKind(update, 'permission')) {
    const { state, title, reason, answeredBy, rule } = update;
    // The page shows open questions by themselves, from the list.
    if (state === 'open') return;
    const tone = state === 'allowed' || state === 'answered' ? 'allowed' : 'denied';
    const decided = `${state[0]?.toUpperCase()}${state.slice(1)}: ${title}`;
    const text = reason ? `${decided} (${reason})` : decided;
    const isKnown = answeredBy !== undefined || rule !== undefined;
    const decidedBy = { ...(answeredBy !== undefined && { answeredBy }), ...(rule !== undefined && { rule }) };
    items.push({ ...common, kind: 'note', tone, text, ...(isKnown && { decidedBy }) });
  } else if (kind === 'steer' && 'text' in update) {
    items.push({ ...common, kind: 'note', tone: 'plain', text: `Message to the running turn: ${update.text}` });
  } else if (kind === 'status' && 'text' in update && update.text !== '') {
    items.push({ ...common, kind: 'note', tone: 'plain', text: `${update.text}` });
  } else if (kind === 'started') {
    const { prompt } = update as { prompt?: unknown };
    items.push({ ...common, kind: 'start', prompt: typeof prompt === 'string' ? prompt : '' });
  } else if (ENDS.has(kind) && 'message' in update) {
    const { message, code } = update as { message: string; code?: unknown };
    if (kind === 'cancelled' && !items.some((item) => item.turnId === turnId)) addRemoved(items, common, message);
    else items.push({ ...common, kind: 'end', status: kind, message, code: typeof code === 'string' ? code : '' });
  } else if (RUNS.has(kind)) items.push({ ...common, kind: 'note', tone: 'plain', text: RUNS.get(kind) ?? kind });
}

/** A turn that was removed while it waited. The text of the running turn, which goes on, is not cut in two by the note. */
function addRemoved(items: Item[], common: Common, text: string): void {
  const last = items.at(-1);
  const isGoingOn = last?.kind === 'text' || last?.kind === 'thinking';
  const note: Item = { ...common, kind: 'note', tone: 'plain', text, isUnsent: true };
  items.splice(isGoingOn ? -1 : items.length, 0, note);
}

/** Text of the same step continues the item before it. */
function addText(items: Item[], common: Common, kind: 'text' | 'thinking', text: string): void {
  const last = items.at(-1);
  const continues = last?.kind === kind && last.turnId === common.turnId && last.providerId === common.providerId;
  if (continues) items[items.length - 1] = { ...last, text: last.text + text, until: common.at };
  else items.push({ ...common, kind, text, until: common.at });
}

/** A call is one item however often it is reported; what a later report leaves out stays. */
function addCall(items: Item[], common: Common, update: Extract<Update, { kind: 'tool_call' }>): void {
  const { seq: _seq, at: _at, turnId, kind: _kind, stepIndex: _step, providerId: _provider, ...call } = update;
  const index = items.findLastIndex(
    (item) =>
      item.kind === 'tool' &&
      item.call.toolCallId === call.toolCallId &&
      item.turnId === turnId &&
      item.providerId === common.providerId,
  );
  const known = items[index];
  if (known?.kind === 'tool') items[index] = { ...known, call: { ...known.call, ...call } };
  else items.push({ ...common, kind: 'tool', call });
}

/** Several calls in a row that only look at something, as one line. */
export type Group = Common & { readonly kind: 'group'; readonly calls: readonly ToolCall[] };

const LOOKS: ReadonlySet<string> = new Set(['read', 'search']);
const MIN_GROUP = 3;

/** Puts calls together that read or search, have ended well, and follow each other. */
export function groupLooks(items: readonly Item[]): readonly (Item | Group)[] {
  const shown: (Item | Group)[] = [];
  let run: Extract<Item, { kind: 'tool' }>[] = [];
  function end(): void {
    const [first] = run;
    if (first === undefined || run.length < MIN_GROUP) shown.push(...run);
    else {
      const { call: _call, ...common } = first;
      shown.push({ ...common, kind: 'group', calls: run.map(({ call }) => call) });
    }
    run = [];
  }
  for (const item of items) {
    const isLook = item.kind === 'tool' && LOOKS.has(item.call.toolKind) && item.call.status === 'completed';
    const [first] = run;
    if (!isLook || (first !== undefined && (first.turnId !== item.turnId || first.providerId !== item.providerId)))
      end();
    if (isLook) run.push(item);
    else shown.push(item);
  }
  end();
  return shown;
}
