import type { ChatRequest } from '../../../../src/completions/contract/chat.ts';
import type { ChatAnswer } from '../../../../src/completions/operations/run-chat.ts';
import type { Clock } from '../../../../src/platform/clock/clock.ts';
import { errorCode } from '../../../../src/platform/errors/app-error.ts';
import type { Chance } from '../chance.ts';
import type { PlayedProgram } from '../played-program.ts';
import type { CallEvent } from './attempt-events.ts';
import type { PlayedCompletions } from './played-completions.ts';

export interface ChatAppsOptions {
  readonly chance: Chance;
  readonly clock: Clock;
  readonly completions: PlayedProgram<PlayedCompletions>;
  readonly models: readonly string[];
  /** Keys by their names. */
  readonly keys: ReadonlyMap<string, string>;
  /** What a call may cost at most that is answered with no more tokens than were expected. */
  estimate(model: string, tokens: { readonly prompt: number; readonly completion: number }): number;
  note(event: CallEvent): void;
}

/** What came of a call that was let in. */
interface Told {
  readonly text: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Of a stream that broke. */
  readonly problem?: string;
  readonly hasLeft: boolean;
}

const ANSWER_TOKENS = 30;
/** As the service counts them: four characters are one, and a message costs four more. */
const promptTokens = (prompt: string) => 4 + Math.ceil(prompt.length / 4);

/** One of the apps makes a call; nobody waits for the answer. */
export function createChatApps(options: ChatAppsOptions): () => void {
  const { chance, clock, completions, models, keys, estimate, note } = options;
  let calls = 0;

  return () => {
    if (!completions.isRunning()) return;
    calls += 1;
    const call = `call ${calls}`;
    const model = chance.pick(models);
    const keyName = chance.pick([...keys.keys()]);
    const request: ChatRequest = {
      model,
      messages: [{ role: 'user', content: call }],
      max_tokens: ANSWER_TOKENS,
      stream: chance.happens(0.5),
    };
    const left = new AbortController();
    if (chance.happens(0.1)) clock.after(chance.between(0, 8000), () => left.abort());
    const estimatedUsd = estimate(model, { prompt: promptTokens(call), completion: ANSWER_TOKENS });
    completions.ask(
      async ({ runChat, holderOf }): Promise<Told> => {
        const holder = await holderOf(keys.get(keyName) ?? '');
        return read(
          await runChat({ request, holder, requestId: call, strict: false, signal: left.signal }),
          left.signal,
        );
      },
      ({ outcome, code, told, ...times }) => {
        const target = told && { target: `${told.headers['x-model-api']}/${told.headers['x-model-id']}` };
        const attempts = told && { attempts: Number(told.headers['x-attempts']) };
        const problem = told?.problem ?? code;
        const hasLeft = told?.hasLeft === true || code === 'CALL_CANCELLED';
        note({
          kind: 'call',
          call,
          model,
          keyName,
          ...times,
          outcome: hasLeft ? 'left' : told?.problem === undefined ? outcome : 'part',
          ...(problem !== undefined && { code: problem }),
          ...(told && { text: told.text }),
          ...target,
          ...attempts,
          estimatedUsd,
        });
      },
    );
  };
}

async function read(answer: ChatAnswer, left: AbortSignal): Promise<Told> {
  const { headers } = answer;
  if (answer.kind === 'whole') {
    return { text: answer.completion.choices[0]?.message.content ?? '', headers, hasLeft: false };
  }
  let text = '';
  try {
    for await (const chunk of answer.chunks) text += chunk.choices[0]?.delta.content ?? '';
    return { text, headers, hasLeft: left.aborted };
  } catch (error) {
    return { text, headers, problem: errorCode(error), hasLeft: false };
  }
}
