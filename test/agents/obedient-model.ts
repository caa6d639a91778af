import { type ModelReply, type ModelRequest, type ScriptedModel, startScriptedModel } from '../kit/scripted-model.ts';

/** The tool of each agent that runs a command, and how it wants to be called. */
const SHELLS: Readonly<Record<string, (command: string) => Readonly<Record<string, unknown>>>> = {
  exec_command: (command) => ({ cmd: command }),
  Bash: (command) => ({ command, description: 'as told' }),
  bash: (command) => ({ command, description: 'as told' }),
  run_shell_command: (command) => ({ command }),
};

const REMINDERS = /<system-reminder>.*?<\/system-reminder>/gs;

/**
 * A model that does what the prompt says. `SAY word`: says it, in three pieces. `RUN command`: runs it with the agent's
 * own tool and repeats what that printed. `WAIT`: starts to speak and never ends. `RECALL`: lists all words that it was
 * told to say before in the same conversation.
 */
export function startObedientModel(): Promise<ScriptedModel> {
  return startScriptedModel(obey);
}

function obey({ model, userTexts: all, toolResults, toolNames }: ModelRequest): ModelReply {
  // Prompts of the agents themselves, such as for a title, offer no tools.
  if (toolNames.length === 0) return { text: ['a title'] };
  // Some agents speak as the user, to remind the model of something.
  const userTexts = all.map((text) => text.replaceAll(REMINDERS, '').trim()).filter((text) => text !== '');
  const last = userTexts.at(-1) ?? '';
  const shell = toolNames.find((name) => Object.hasOwn(SHELLS, name));
  const command = /RUN ([^\n]+)/.exec(last)?.[1];
  if (command !== undefined && shell !== undefined) {
    if (toolResults.length > 0) return { text: ['It printed: ', toolResults.join(' ')] };
    return { text: ['I run it.'], toolCall: { name: shell, arguments: SHELLS[shell]?.(command) ?? {} } };
  }
  if (last.includes('WAIT')) return { text: ['I wait'], endless: true };
  if (last.includes('RECALL')) return { text: [`Said: ${wordsOf(userTexts).join(' ')}.`] };
  return {
    thinking: 'I was told to say something.',
    text: ['Here ', 'is ', `${wordsOf([last]).join('')} from ${model}.`],
  };
}

function wordsOf(texts: readonly string[]): readonly string[] {
  return texts.flatMap((text) => /SAY (\w+)/.exec(text)?.[1] ?? []);
}
